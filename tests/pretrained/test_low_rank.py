"""Chapter 37: a low-rank change starts at zero, only it learns, and it can be added to the matrix."""

import copy
import re
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.pretrained.c37_low_rank import LowRank, low_rank_of, matrices
from tests.models.gradients import randomized

LLAMA = na.GPTConfig(
    vocab_size=11, context_length=7, d_model=12, num_heads=6, num_layers=2, d_ff=10, num_kv_heads=2,
    positions="rotary", norm="rms_norm", activation="swiglu", bias=False,
)  # fmt: skip
UNTIED = na.GPTConfig(11, 7, d_model=6, num_heads=3, num_layers=1, d_ff=5, tie_weights=False)
ENCODER = na.TextEncoderConfig(11, 7, d_model=8, num_heads=4, num_layers=2, d_ff=9, pad_token=0)
EXPERTS = na.ExpertsGPTConfig(
    11, 7, d_model=12, num_heads=6, num_layers=2, d_ff=5, bias=False, num_experts=3, top_k=2, renormalize=False
)  # fmt: skip
CONFIGS: dict[str, Any] = {"llama": LLAMA, "untied": UNTIED, "encoder": ENCODER, "experts": EXPERTS}
KINDS: dict[str, Any] = {"encoder": na.TextEncoder, "experts": na.ExpertsGPT}
MATRICES = {"llama": 2 * 7, "untied": 6, "encoder": 2 * 6, "experts": 2 * (4 + 1 + 3 * 3)}
every_model = pytest.mark.parametrize("name", CONFIGS)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def made(name: str, rng: np.random.Generator, dtype: Any = np.float32) -> Any:
    return randomized(KINDS.get(name, na.GPT)(CONFIGS[name], None, dtype), rng)


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    ids, targets = rng.integers(1, 11, (2, 3, 5))
    return ids, targets


def frozen_arrays(model: Any) -> dict[str, np.ndarray]:
    learned = model.parameters()
    return {dotted: getattr(owner, name) for dotted, owner, name in model.arrays() if dotted not in learned}


@both_dtypes
@pytest.mark.parametrize(("rank", "alpha"), [(1, None), (3, 2.0), (np.int64(9), np.float64(0.5))])
def test_the_layer_computes_its_formula(rank: int, alpha: float | None, dtype: Any, rng: np.random.Generator) -> None:
    w = rng.standard_normal((6, 4)).astype(dtype)
    layer = randomized(LowRank(w, rank, alpha, rng), rng)
    x = rng.standard_normal((2, 5, 6)).astype(dtype)
    y, _ = layer.forward(x)
    scale = 2.0 if alpha is None else alpha / rank
    assert y.dtype == layer.merged().dtype == dtype
    np.testing.assert_allclose(y, x @ w + scale * (x @ layer.a) @ layer.b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, x @ layer.merged(), rtol=1e-5, atol=1e-5)
    assert layer.parameters().keys() == {"a", "b"}


@every_model
@both_dtypes
def test_a_new_change_leaves_the_pretrained_model_equal_bit_for_bit(
    name: str, dtype: Any, rng: np.random.Generator
) -> None:
    model = made(name, rng, dtype)
    changed = copy.deepcopy(model)
    na.add_low_rank(changed, 2, rng=rng)
    ids, targets = batch(rng)
    np.testing.assert_array_equal(changed.forward(ids)[0], model.forward(ids)[0])
    assert changed.loss(ids, targets)[0] == model.loss(ids, targets)[0]
    grads = changed.backward(changed.loss(ids, targets)[1])
    assert grads["blocks.0.attention.w_v.b"].any()
    assert not grads["blocks.0.attention.w_v.a"].any()  # b is zero: a learns from the second step on


@every_model
def test_only_the_matrices_of_the_blocks_get_changes_that_learn(name: str, rng: np.random.Generator) -> None:
    model = made(name, rng)
    names = {dotted for dotted, *_ in matrices(model)}
    assert len(names) == MATRICES[name]
    assert names == {n for n, p in model.parameters().items() if n.startswith("blocks.") and p.ndim == 2}
    expected = sum(3 * sum(model.parameters()[n].shape) for n in names)
    assert low_rank_of(model) is None
    na.add_low_rank(model, 3, 5.0, rng)
    assert low_rank_of(model) == (3, 5.0)
    assert model.parameters().keys() == {f"{n}.{side}" for n in names for side in "ab"}
    assert model.num_parameters() == expected


@every_model
def test_merged_model_equals_unmerged_model(name: str, rng: np.random.Generator) -> None:
    model = made(name, rng)
    full = {n: (p.shape, p.dtype) for n, p in model.parameters().items()}
    na.add_low_rank(model, 3, 5.0, rng)
    randomized(model, rng, 0.2)
    merged = copy.deepcopy(model)
    na.merge_low_rank(merged)
    ids, targets = batch(rng)
    y, y_merged = model.forward(ids)[0], merged.forward(ids)[0]
    np.testing.assert_allclose(y_merged, y, rtol=0, atol=1e-6 * np.abs(y).max())
    assert {n: (p.shape, p.dtype) for n, p in merged.parameters().items()} == full
    assert merged.backward(merged.loss(ids, targets)[1]).keys() == full.keys()
    na.add_low_rank(merged, 1)  # a merged model can get new changes
    assert low_rank_of(merged) == (1, 2.0)


@every_model
def test_training_moves_only_the_changes(name: str, rng: np.random.Generator) -> None:
    model = made(name, rng)
    na.add_low_rank(model, 2, rng=rng)
    ids, targets = batch(rng)
    frozen, learned = copy.deepcopy(frozen_arrays(model)), copy.deepcopy(model.parameters())
    assert len(frozen) > 4
    optimizer = na.AdamW(model.parameters(), 0.01)
    assert optimizer.m.keys() == model.parameters().keys()
    losses = na.train(model, optimizer, [(ids, targets)] * 12)
    assert losses[-1] < losses[0]
    for key, p in frozen_arrays(model).items():
        np.testing.assert_array_equal(p, frozen[key])
    assert all(np.any(p != learned[key]) for key, p in model.parameters().items())
    assert model.backward(model.loss(ids, targets)[1]).keys() == learned.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "add_low_rank: rank must be in [1, 12], got 0"),
        ({"rank": 13}, "add_low_rank: rank must be in [1, 12], got 13"),
        ({"rank": 2, "alpha": 0.0}, "LowRank: alpha must be above 0 and finite, got 0.0"),
    ],
    ids=str,
)
def test_refuses_an_invalid_rank_or_alpha_and_leaves_the_model_unchanged(
    options: dict[str, Any], message: str, rng: np.random.Generator
) -> None:
    model = made("llama", rng)
    before = model.parameters()
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        na.add_low_rank(model, rng=rng, **options)
    after = model.parameters()
    assert list(after) == list(before)
    assert all(after[key] is p for key, p in before.items())


def test_save_refuses_a_model_with_frozen_arrays(rng: np.random.Generator, tmp_path: Any) -> None:
    model = made("untied", rng)
    na.add_low_rank(model, 2, rng=rng)
    with pytest.raises(ValueError, match=r"GPT\.save: .* frozen .*merge_low_rank"):
        model.save(tmp_path / "model.npz")
    model.unfreeze()  # not enough: the matrices with changes stay frozen
    with pytest.raises(ValueError, match=r"GPT\.save: .* frozen .*call merge_low_rank if add_low_rank froze them"):
        model.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
    na.merge_low_rank(model)
    model.save(tmp_path / "model.npz")
    loaded = na.GPT.load(tmp_path / "model.npz")
    ids, _ = batch(rng)
    np.testing.assert_array_equal(loaded.forward(ids)[0], model.forward(ids)[0])
