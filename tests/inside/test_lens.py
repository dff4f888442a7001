"""Chapter 40: the shares of a stream add up to the logit, and the lens at the end equals the model."""

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
    with pytest.raises(TypeError, match="direct_effects: direction must be "):
        inside.direct_effects(model, cache.at, np.ones(8, np.float32))
    for name, wrong in (("norm", cache.at["norm"][0]), ("blocks.1.attention", cache.at["blocks.1.attention"][:, :1])):
        with pytest.raises(ValueError, match=rf"^direct_effects: at\['{name}'\] must be "):
            inside.direct_effects(model, {**cache.at, name: wrong}, np.ones(8))
    with pytest.raises(TypeError, match=r"logit_lens: x must be float64, the dtype of model\.norm\.gamma, got float32"):
        inside.logit_lens(model, np.zeros(8, np.float32))


def test_rollout_refuses_weights_that_do_not_fit_each_other() -> None:
    square = np.full((1, 2, 3, 3), 1 / 3)
    for invalid in (np.zeros((1, 2, 3, 4)), np.ones((2, 2, 3, 3))):
        with pytest.raises(ValueError, match=r"in every block, with one B and T, got .* at 'b'"):
            inside.attention_rollout({"a": square, "b": invalid})
    with pytest.raises(TypeError, match=r"weights\['b'\] must be float64, the dtype of weights\['a'\], got float32"):
        inside.attention_rollout({"a": square, "b": square.astype(np.float32)})
    with pytest.raises(ValueError, match=r"of one stack of blocks, got 'decoder\.blocks\.0\.cross_attention'"):
        inside.attention_rollout({"encoder.blocks.0.attention": square, "decoder.blocks.0.cross_attention": square})
    assert inside.attention_rollout({"a": square[:0]}).shape == (0, 3, 3)
    np.testing.assert_array_equal(inside.attention_rollout({"a": np.ones((1, 2, 1, 1))}), np.ones((1, 1, 1)))
