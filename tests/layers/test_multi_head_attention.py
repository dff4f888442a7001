"""Multi-head attention: weights that sum to one, shared keys, the KV cache."""

import numpy as np
import pytest

import numpy_attention as na
from tests.layers.gradients import MASK, assert_gradients, randomized


def test_gradients_of_cross_attention_agree_with_central_differences(rng):
    layer = randomized(na.MultiHeadAttention(12, 3, rng, bias=True, dtype=np.float64), rng)
    x, context = rng.standard_normal((3, 5, 12)), rng.standard_normal((3, 4, 12))
    mask = rng.random((3, 1, 5, 4)) < 0.6
    mask[1, 0, 2] = False  # a query that sees no key
    assert_gradients(layer, (x, context), {"mask": mask}, rng)


def test_rows_of_cached_weights_sum_to_one(rng):
    layer = na.MultiHeadAttention(12, 3, rng)
    _, cache = layer.forward(rng.standard_normal((2, 5, 12)).astype(np.float32), mask=MASK)
    assert cache.attention.weights.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(cache.attention.weights.sum(axis=-1), 1.0, rtol=1e-6)
    assert not cache.attention.weights[..., ~MASK].any()


def test_initial_weights_have_the_scale_of_glorot(rng):
    layer = na.MultiHeadAttention(64, 8, rng)
    for p in layer.parameters().values():
        assert p.std() == pytest.approx(np.sqrt(2 / (64 + 8)), rel=0.05)


def test_each_head_is_a_separate_attention(rng):
    layer = na.MultiHeadAttention(12, 3, rng, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    heads = []
    for columns in (slice(0, 4), slice(4, 8), slice(8, 12)):
        q, k, v = (x @ w[:, columns] for w in (layer.w_q, layer.w_k, layer.w_v))
        heads.append(na.scaled_dot_product_attention(q, k, v, mask=MASK)[0])
    y = np.concatenate(heads, axis=-1) @ layer.w_o
    np.testing.assert_allclose(layer.forward(x, mask=MASK)[0], y, rtol=1e-10)


def test_dropout_acts_on_the_weights_only_with_a_generator(rng):
    layer = na.MultiHeadAttention(12, 3, rng, dropout=0.5)
    x = rng.standard_normal((2, 5, 12)).astype(np.float32)
    without = layer.forward(x)[0]
    assert not np.allclose(layer.forward(x, rng=rng)[0], without)
    np.testing.assert_array_equal(layer.forward(x)[0], without)


def test_bias_on_scores_can_hide_the_same_pairs_as_a_mask(rng):
    layer = na.MultiHeadAttention(12, 3, rng, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    hidden = np.where(MASK, 0.0, -1e9)
    np.testing.assert_allclose(layer.forward(x, scores_bias=hidden)[0], layer.forward(x, mask=MASK)[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 10, "num_heads": 3}, "d_model must be divisible by num_heads, got 10 and 3"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads"),
        ({"num_heads": 4, "rotary_base": 1e4}, "d_k must be even, got 3"),
        ({"num_heads": 0}, "must be at least 1"),
    ],
    ids=str,
)
def test_refuses_heads_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        na.MultiHeadAttention(**{"d_model": 12, "rng": None, **options})


def test_kv_cache_gives_the_same_result_as_a_fresh_forward(rng):
    layer = na.MultiHeadAttention(12, 4, rng, num_kv_heads=2, d_k=4, rotary_base=100.0, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    whole, _ = layer.forward(x, mask=MASK)
    past = na.KeyValueCache(capacity=6)
    first, _ = layer.forward(x[:, :2], mask=MASK[:2, :2], past=past, positions=np.arange(2))
    rest, _ = layer.forward(x[:, 2:], mask=MASK[2:], past=past, positions=np.arange(2, 5))
    np.testing.assert_allclose(np.concatenate([first, rest], axis=1), whole, rtol=1e-12)
    with pytest.raises(ValueError, match="at most 6 positions, got 7"):
        layer.forward(x[:, :2], past=past)


def test_refuses_backward_through_kv_cache(rng):
    layer, past = na.MultiHeadAttention(8, 2, rng), na.KeyValueCache(6)
    x, context = rng.standard_normal((2, 1, 3, 8)).astype(np.float32)
    layer.forward(x, context, past=past)
    y, cache = layer.forward(x, context, past=past)
    with pytest.raises(ValueError, match="there is no backward through a KV cache"):
        layer.backward(y, cache)


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (np.arange(4), ValueError, r"rotary: positions must be broadcastable to .* = \(2, 4, 5\), got \(4,\)"),
        (np.zeros((3, 5), int), ValueError, r"rotary: positions must be .* \(2, 4, 5\), got \(3, 1, 5\)"),
        (np.zeros((2, 4, 5), int), ValueError, r"rotary: positions must be .* \(2, 2, 5\), got \(2, 4, 5\)"),
        (np.ones(5, bool), TypeError, "rotary: positions must be an array of numbers, got bool"),
        ([0, 1, 2, 3, 4], TypeError, "rotary: positions must be an array of numbers, got list"),
        ([[0, 1, 2, 3, 4]], TypeError, "MultiHeadAttention: positions must be an array, got list"),
    ],
    ids=["too few", "three sequences", "of each query head", "bool", "a list", "a list of lists"],
)
def test_refuses_positions_that_do_not_fit(positions, error, message, rng):
    layer = na.MultiHeadAttention(8, 4, rng, num_kv_heads=2, rotary_base=100.0)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    with pytest.raises(error, match=message):
        layer.forward(x, positions=positions)
    context = x[:, :3]
    with pytest.raises(ValueError, match=r"rotary: positions must be .* = \(2, 2, 3\), got \(5,\)"):
        layer.forward(x, context, positions=np.arange(5))
