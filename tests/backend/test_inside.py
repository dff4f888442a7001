"""Part VI on the device: edits from the host are moved to the model, and effects are the same as on the host."""

import copy
from typing import Any

import numpy as np
import pytest

from numpy_attention import GPT, inside
from tests.backend.devices import Device, waits
from tests.inside.test_run import KINDS

GPTS = [kind for kind in KINDS if "coder" not in kind and "classifier" not in kind]
OF_ONE_TEXT = [kind for kind in KINDS if "encoder-decoder" not in kind]


def both(kind: str, device: Device) -> tuple[Any, Any, tuple[np.ndarray, ...]]:
    """A model on the host, a copy on the device, and the inputs, on the host."""
    model, inputs = KINDS[kind](np.float32)
    return model, copy.deepcopy(model).to(device.backend), inputs


def agree(device: Device, there: dict[str, Any], here: dict[str, np.ndarray], largest: float = 1.0) -> None:
    assert list(there) == list(here)
    for name, array in here.items():
        device.agree(there[name], array, name, largest)


@pytest.mark.parametrize("kind", KINDS)
def test_run_on_the_device_with_edits_from_the_host(kind: str, device: Device) -> None:
    model, there, inputs = both(kind, device)
    name = next(name for name in inside.forward_with(model, {}, *inputs)[1].at if name.endswith("attention"))
    mask = inside.one_head(1, 2)
    value = np.full((1, 2, 1, 4), 0.5, np.float32)
    steered = {name.removesuffix(".attention"): inside.Edit(None, np.ones(8, np.float32))}
    silent, put = {name: inside.replacing(mask)}, {name: inside.replacing(mask, value), **steered}
    for edits, moved in (
        (silent, silent), (put, put),
        (put, {**put, name: inside.replacing(mask, device.move(value))}),
        (put, {**put, name: inside.replacing(device.move(mask), value)}),
    ):
        with device.same_path():
            y, cache = inside.forward_with(model, edits, *inputs)
            d_at, grads = inside.backward_with(y, cache)
        with waits() as found:
            y_there, cache_there = inside.forward_with(there, moved, *inputs)
            d_at_there, grads_there = inside.backward_with(y_there, cache_there)
        assert not found
        device.agree(y_there, y, "y")
        largest = max(float(np.abs(grad).max()) for grad in grads.values())
        agree(device, cache_there.at, cache.at)
        agree(device, d_at_there, d_at, largest)
        agree(device, grads_there, grads, largest)


@pytest.mark.parametrize("kind", GPTS)
def test_lenses_agree_with_the_host(kind: str, device: Device) -> None:
    model, there, inputs = both(kind, device)
    at, at_there = (inside.forward_with(one, {}, *inputs)[1].at for one in (model, there))
    assert isinstance(model, GPT)
    with waits() as found:
        U = inside.unembedding(there)
        logits = inside.logit_lens(there, at_there["blocks.1"])
        rollout = inside.attention_rollout(there.attention_weights(*inputs))
        shares = inside.direct_effects(there, at_there, U[1]) if model.config.pre_norm else {}
    assert not found
    device.agree(U, inside.unembedding(model), "unembedding")
    device.agree(logits, inside.logit_lens(model, at["blocks.1"]), "logits")
    device.agree(rollout, inside.attention_rollout(model.attention_weights(*inputs)), "rollout")
    if model.config.pre_norm:
        here = inside.direct_effects(model, at, inside.unembedding(model)[1])
        agree(device, shares, here, max(float(np.abs(share).max()) for share in here.values()))


@pytest.mark.parametrize("kind", GPTS)
def test_scores_of_heads_agree_with_the_host(kind: str, device: Device) -> None:
    model, there, (ids,) = both(kind, device)
    agree(device, inside.previous_token_scores(there, ids), inside.previous_token_scores(model, ids))
    if model.config.pre_norm:
        copying, copying_there = inside.copying_scores(model), inside.copying_scores(there)
        for name, scores in copying.items():
            np.testing.assert_allclose(copying_there[name], scores, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("kind", OF_ONE_TEXT)
def test_patching_effects_and_estimates_agree_with_the_host(kind: str, device: Device) -> None:
    model, there, inputs = both(kind, device)
    ids, other = inputs[0][:1], inputs[0][1:2]
    y, _ = inside.forward_with(model, {}, ids)
    dy = np.random.default_rng(0).standard_normal(y.shape).astype(np.float32)
    for effects in (inside.patching_effects, inside.attributed_effects):
        here = effects(model, ids, other, dy)
        largest = 10 * max(float(np.abs(array).max()) for array in here.values())  # a difference of larger numbers
        with waits() as found:
            moved = effects(there, ids, other, device.move(dy))
            all_moved = effects(there, device.move(ids), device.move(other), dy)
        assert not found
        agree(device, moved, here, largest)
        agree(device, all_moved, here, largest)
    with pytest.raises(ValueError, match="attributed_effects: order must be 1 on a GPU, got 2"):
        inside.attributed_effects(there, ids, other, dy, order=2)
