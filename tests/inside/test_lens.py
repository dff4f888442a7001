"""Chapter 40: the shares of a stream add up to the logit, and the lens at the end equals the model."""

import re
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import inside
from numpy_attention.layers.c13_layer import Parameters

VARIANTS: dict[str, dict[str, Any]] = {
    "tied, layer norm": {},
    "untied, rms norm, grouped heads": {
        "positions": "rotary", "num_kv_heads": 1, "norm": "rms_norm", "activation": "swiglu", "bias": False,
        "tie_weights": False,
    },
    "sinusoidal": {"positions": "sinusoidal", "norm_eps": 0.3},
}
IDS = np.array([[1, 4, 4, 0, 6], [2, 3, 5, 1, 1]])


def model_of(low_rank: bool = False, dtype: Any = np.float64, **config: Any) -> na.GPT:
    rng = np.random.default_rng(3)
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 5, **config}
    model = na.GPT(na.GPTConfig(7, 6, **sizes), rng, dtype)
    if low_rank:
        na.add_low_rank(model, 2, 3.0, rng)
    for p in model.parameters().values():
        p += (0.5 * rng.standard_normal(p.shape)).astype(dtype)
    return model


def summed(shares: Parameters) -> np.ndarray:
    return sum(share.sum(1) if share.ndim == 3 else share for share in shares.values())


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_shares_of_all_parts_add_up_to_the_logit(variant: str, low_rank: bool) -> None:
    model = model_of(low_rank, **VARIANTS[variant])
    logits, cache = inside.forward_with(model, {}, IDS)
    for token in (0, 5):
        shares = inside.direct_effects(model, cache.at, inside.unembedding(model)[token])
        np.testing.assert_allclose(summed(shares), logits[..., token], rtol=1e-10, atol=1e-12)


def test_each_position_uses_its_own_direction() -> None:
    model = model_of()
    logits, cache = inside.forward_with(model, {}, IDS)
    targets = np.roll(IDS, -1, axis=1)
    shares = inside.direct_effects(model, cache.at, inside.unembedding(model)[targets])
    expected = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(summed(shares), expected, rtol=1e-10, atol=1e-12)


def test_float32_activations_give_float32_shares() -> None:
    model = model_of(dtype=np.float32)
    logits, cache = inside.forward_with(model, {}, IDS)
    shares = inside.direct_effects(model, cache.at, inside.unembedding(model)[2])
    assert {share.dtype for share in shares.values()} == {np.dtype(np.float32)}
    np.testing.assert_allclose(summed(shares), logits[..., 2], rtol=1e-4, atol=1e-4)


def test_share_of_a_head_is_the_change_of_the_logit_at_fixed_sigma_when_it_is_ablated() -> None:
    """Ablate one head of the last block, with no later network: the logit changes by the share of the head."""
    model = model_of()
    model.blocks[-1].feed_forward.w_2[...] = 0.0
    logits, cache = inside.forward_with(model, {}, IDS)
    U = inside.unembedding(model)
    share = inside.direct_effects(model, cache.at, U[3])["blocks.1.attention"][:, 1]
    cut = {"blocks.1.attention": inside.replacing(inside.one_head(1, 2))}
    stream = inside.forward_with(model, cut, IDS)[1].at["norm"]
    before = cache.at["norm"]
    sigma = np.sqrt(before.var(-1, keepdims=True) + model.norm.eps)
    without = ((stream - stream.mean(-1, keepdims=True)) / sigma * model.norm.gamma + model.norm.beta) @ U[3]
    np.testing.assert_allclose(logits[..., 3] - without, share, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_lens_on_the_last_stream_gives_the_logits_of_the_model(variant: str) -> None:
    model = model_of(**VARIANTS[variant])
    logits, cache = inside.forward_with(model, {}, IDS)
    np.testing.assert_array_equal(inside.logit_lens(model, cache.at["norm"]), logits)
    assert inside.logit_lens(model, cache.at["blocks.0"][0, -1]).shape == (7,)


def test_rollout_of_identity_weights_is_identity_and_its_rows_sum_to_one(rng: np.random.Generator) -> None:
    identity = np.broadcast_to(np.eye(4), (2, 3, 4, 4))
    np.testing.assert_allclose(inside.attention_rollout({"a": identity, "b": identity}), identity[:, 0])
    weights = rng.dirichlet(np.ones(4), size=(2, 3, 4))
    no_keys = weights.copy()
    no_keys[0, :, 1] = 0.0
    rolled = inside.attention_rollout({"a": weights, "b": no_keys})
    np.testing.assert_allclose(rolled.sum(-1), 1.0)
    two = (weights.mean(1) + np.eye(4)) / 2
    np.testing.assert_allclose(inside.attention_rollout({"a": weights, "b": weights}), two @ two)


def test_rollout_multiplies_from_the_first_block_to_the_last(rng: np.random.Generator) -> None:
    """In block 1, token 2 looks at 1; in block 0, 1 looks at 0. In the other order, 2 would get nothing from 0."""
    low, high = np.eye(3)[None, None].copy(), np.eye(3)[None, None].copy()
    low[0, 0, 1] = [1.0, 0.0, 0.0]
    high[0, 0, 2] = [0.0, 1.0, 0.0]
    rolled = inside.attention_rollout({"blocks.0.attention": low, "blocks.1.attention": high})
    np.testing.assert_allclose(rolled[0, 2], [0.25, 0.25, 0.5])


def test_refuses_arguments_that_do_not_fit_with_a_reason() -> None:
    model = model_of()
    _, cache = inside.forward_with(model, {}, IDS)
    encoder = na.TextEncoder(na.TextEncoderConfig(7, 6, 8, 2, 1), np.random.default_rng(0))
    U = inside.unembedding(model)
    with pytest.raises(TypeError, match="logit_lens: model must be a GPT, got TextEncoder"):
        inside.logit_lens(encoder, cache.at["norm"])
    with pytest.raises(ValueError, match=r"x must be \(\.\.\., 8\), a residual stream, got \(2, 5, 7\)"):
        inside.logit_lens(model, np.zeros((2, 5, 7)))
    with pytest.raises(ValueError, match="pre-norm"):
        inside.direct_effects(model_of(pre_norm=False), cache.at, U[0])
    with pytest.raises(ValueError, match="with norm"):
        inside.direct_effects(model, {k: v for k, v in cache.at.items() if k != "norm"}, U[0])
    with pytest.raises(ValueError, match=r"direction must be \(8,\)"):
        inside.direct_effects(model, cache.at, U)
    for invalid in (U[0][:1], U[0, 0], np.ones((1, 5, 1))):
        with pytest.raises(ValueError, match=r"direction must be \(8,\)"):
            inside.direct_effects(model, cache.at, np.asarray(invalid))
    for invalid in (np.ones(8, int), np.ones(8, np.float32), np.ones(8, object), [1.0] * 8):
        with pytest.raises(TypeError, match="direct_effects: direction must be "):
            inside.direct_effects(model, cache.at, invalid)
    with pytest.raises(TypeError, match=r"logit_lens: x must be float64, the dtype of model\.norm\.gamma, got float32"):
        inside.logit_lens(model, np.zeros(8, np.float32))


MISMATCHED: dict[str, tuple[str, Any]] = {
    "one text": ("norm", lambda x: x[0]), "narrower": ("norm", lambda x: x[..., :7]),
    "one token": ("blocks.0", lambda x: x[:, :1]), "one head": ("blocks.0.attention", lambda x: x[:, :1]),
    "heads after positions": ("blocks.1.attention", lambda x: x.swapaxes(1, 2)),
    "heads of one text": ("blocks.1.attention", lambda x: x[0]),
    "more heads": ("blocks.1.attention", lambda x: x.reshape(2, 4, 5, 2)),
    "fewer texts": ("blocks.1.feed_forward", lambda x: x[:1]),
    "another dtype": ("blocks.1.feed_forward", lambda x: x.astype(np.float32)),
}


@pytest.mark.parametrize("case", MISMATCHED)
def test_refuses_activations_of_another_run_or_model_and_names_the_place(case: str) -> None:
    name, change = MISMATCHED[case]
    model = model_of()
    at = inside.forward_with(model, {}, IDS)[1].at
    with pytest.raises((TypeError, ValueError), match=rf"^direct_effects: at\['{re.escape(name)}'\] must be "):
        inside.direct_effects(model, {**at, name: change(at[name])}, np.ones(8))


def test_rollout_refuses_weights_that_do_not_fit_each_other() -> None:
    square = np.full((1, 2, 3, 3), 1 / 3)
    for invalid in (np.zeros((1, 2, 3, 4)), square[0], square[:, :0], np.ones((1, 2, 4, 4)), np.ones((2, 2, 3, 3))):
        with pytest.raises(ValueError, match=r"in every block, with one B and T, got .* at 'b'"):
            inside.attention_rollout({"a": square, "b": invalid})
    with pytest.raises(TypeError, match=r"weights\['b'\] must be float64, the dtype of weights\['a'\], got float32"):
        inside.attention_rollout({"a": square, "b": square.astype(np.float32)})
    with pytest.raises(ValueError, match=r"of one stack of blocks, got 'decoder\.blocks\.0\.cross_attention'"):
        inside.attention_rollout({"encoder.blocks.0.attention": square, "decoder.blocks.0.cross_attention": square})
    assert inside.attention_rollout({"a": square[:0]}).shape == (0, 3, 3)
    np.testing.assert_array_equal(inside.attention_rollout({"a": np.ones((1, 2, 1, 1))}), np.ones((1, 1, 1)))
