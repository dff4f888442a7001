"""The GPT: gradients of every variant, causality, tied weights, and initial weights like GPT-2."""

import copy
import dataclasses
import math

import numpy as np
import pytest

import numpy_attention as na
from tests.models.gradients import assert_gradients, randomized

V, T, B = 11, 5, 3
CONFIG = na.GPTConfig(vocab_size=V, context_length=7, d_model=12, num_heads=2, num_layers=2)
VARIANTS = {
    "gpt-2": {},
    "untied": {"tie_weights": False},
    "post-norm": {"pre_norm": False, "bias": False},
    "exact gelu": {"activation": "gelu_exact", "d_ff": 5},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary", "rotary_base": 50.0},
    "alibi": {"positions": "alibi", "num_heads": 3},
    "llama": {
        "positions": "rotary", "norm": "rms_norm", "activation": "swiglu", "bias": False,
        "num_kv_heads": 2, "num_heads": 6},
    "window": {"positions": "alibi", "window": 2, "num_heads": 4, "num_kv_heads": 1, "activation": "silu"},
}  # fmt: skip


def gpt(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> na.GPT:
    return randomized(na.GPT(dataclasses.replace(CONFIG, **changes), rng, dtype), rng)


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    ids, targets = rng.integers(0, V, (2, B, T))
    targets[1, 2:4] = -100
    return ids, targets


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_agrees_with_central_differences(variant, rng):
    model, (ids, targets) = gpt(rng, **VARIANTS[variant]), batch(rng)
    assert_gradients(model, lambda: model.loss(ids, targets), rng)


def test_gradients_with_dropout_agree_with_central_differences(rng):
    model, (ids, targets) = gpt(rng, dropout=0.3), batch(rng)
    assert_gradients(model, lambda: model.loss(ids, targets, training=True, rng=np.random.default_rng(3)), rng)


def test_dropout_is_off_unless_training(rng):
    model, (ids, targets) = gpt(rng, dropout=0.3), batch(rng)
    plain = model.loss(ids, targets)[0]
    assert model.loss(ids, targets, rng=np.random.default_rng(3))[0] == plain
    assert model.loss(ids, targets, training=True, rng=np.random.default_rng(3))[0] != plain


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_position_sees_a_later_one(variant, rng):
    model, (ids, _) = gpt(rng, **VARIANTS[variant]), batch(rng)
    logits, _ = model.forward(ids)
    changed = ids.copy()
    changed[:, 3:] = (ids[:, 3:] + 1) % V
    np.testing.assert_allclose(model.forward(changed)[0][:, :3], logits[:, :3], rtol=1e-10, atol=1e-12)
    assert not np.allclose(model.forward(changed)[0][:, 3:], logits[:, 3:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_backward_repeats_its_result_and_keeps_the_dtype(dtype, rng):
    model, (ids, targets) = gpt(rng, dtype), batch(rng)
    loss, cache = model.loss(ids, targets)
    _, other = model.loss(ids[::-1], targets)  # a second use before the first backward
    grads, again = model.backward(cache), model.backward(cache)
    assert loss.dtype == dtype
    for name, gradient in grads.items():
        assert gradient.dtype == dtype
        np.testing.assert_array_equal(gradient, again[name])
        assert not np.shares_memory(gradient, model.parameters()[name])
    assert not np.array_equal(model.backward(other)["norm.gamma"], grads["norm.gamma"])


def test_float32_gradients_are_near_those_in_float64(rng):
    double, (ids, targets) = gpt(rng), batch(rng)
    single = na.GPT(CONFIG, None)
    single.load_parameters({name: p.astype(np.float32) for name, p in double.parameters().items()})
    expected = double.backward(double.loss(ids, targets)[1])
    for name, gradient in single.backward(single.loss(ids, targets)[1]).items():
        assert np.abs(gradient - expected[name]).max() <= 2e-5 * max(np.abs(expected[name]).max(), 1e-2), name


def test_tied_weights_add_two_gradients(rng):
    tied, (ids, targets) = gpt(rng), batch(rng)
    untied = gpt(rng, tie_weights=False)
    shared = copy.deepcopy(tied.parameters())
    untied.load_parameters(shared | {"head.w": shared["token_embedding.table"].T.copy()})
    loss, cache = tied.loss(ids, targets)
    untied_loss, untied_cache = untied.loss(ids, targets)
    assert loss == pytest.approx(float(untied_loss), rel=1e-13)
    grads = untied.backward(untied_cache)
    both = grads["token_embedding.table"] + grads["head.w"].T
    np.testing.assert_allclose(tied.backward(cache)["token_embedding.table"], both, rtol=1e-10, atol=1e-13)


def test_ignored_targets_do_not_change_the_loss(rng):
    model, (ids, targets) = gpt(rng), batch(rng)
    counted = model.loss(ids[:1], targets[:1])[0]
    targets[1:] = -100
    assert model.loss(ids, targets)[0] == pytest.approx(float(counted), rel=1e-12)
    loss, cache = model.loss(ids, np.full_like(targets, -100))
    assert loss == 0.0
    assert not any(gradient.any() for gradient in model.backward(cache).values())


def test_initial_weights_have_the_scales_of_gpt_2():
    config = na.GPTConfig(vocab_size=90, context_length=64, d_model=64, num_heads=4, num_layers=8)
    model = na.GPT(config, np.random.default_rng(0))
    p = model.parameters()
    assert p["token_embedding.table"].std() == pytest.approx(0.02, rel=0.05)
    assert p["blocks.3.attention.w_q"].std() == pytest.approx(0.02, rel=0.05)
    assert p["blocks.3.attention.w_o"].std() == pytest.approx(0.02 / 4, rel=0.05)
    assert p["blocks.7.feed_forward.w_2"].std() == pytest.approx(0.02 / 4, rel=0.05)
    assert (p["norm.gamma"] == 1).all()
    assert not p["blocks.0.attention.b_v"].any()
    ids = np.arange(65)[None]
    assert float(model.loss(ids[:, :-1], ids[:, 1:])[0]) == pytest.approx(math.log(90), abs=0.1)


def test_number_of_parameters_of_gpt_2_small():
    config = na.GPTConfig(vocab_size=5, context_length=1024, d_model=768, num_heads=12, num_layers=1)
    of_one_layer = na.GPT(config, None).num_parameters() - 5 * 768
    of_a_block = 12 * 768**2 + 13 * 768
    assert of_one_layer == 1024 * 768 + of_a_block + 2 * 768
    assert 50257 * 768 + 1024 * 768 + 12 * of_a_block + 2 * 768 == 124_439_808


def test_attention_weights_have_names(rng):
    model, (ids, _) = gpt(rng), batch(rng)
    weights = model.attention_weights(ids)
    assert list(weights) == ["blocks.0.attention", "blocks.1.attention"]
    for w in weights.values():
        assert w.shape == (B, 2, T, T)
        np.testing.assert_allclose(w.sum(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((2, 8), int), r"context_length 7, got \(2, 8\)"),
        (np.zeros(4, int), r"\(B, T\).*for one sequence, pass ids\[None\]"),
        (np.zeros((2, 0), int), "T at least 1"),
        (np.full((1, 2), V), "integers in"),
    ],
    ids=["too long", "one axis", "empty", "outside the vocabulary"],
)
def test_refuses_ids_of_wrong_shape_or_range(ids, message, rng):
    with pytest.raises(ValueError, match=message):
        gpt(rng).forward(ids)


def test_forward_with_kv_cache_stores_no_block_caches_and_refuses_backward(rng):
    model = gpt(rng)
    past = [na.KeyValueCache(7) for _ in model.blocks]
    logits, cache = model.forward(rng.integers(0, V, (B, T)), past=past)
    assert cache.stack.blocks == []
    with pytest.raises(ValueError, match="there is no backward through a KV cache"):
        dict(model.gradients_from_logits(cache, logits))
