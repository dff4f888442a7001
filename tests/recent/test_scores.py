"""Chapter 46: softcap limits scores, a sink takes weight, a gate lets a part of the output pass."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

B, H, T_q, T_k, d_k, d_v = 2, 3, 4, 5, 6, 7  # all different


def draw(rng: np.random.Generator, dtype: Any = np.float64) -> list[Any]:
    """Random scores, a sink, and a gradient of the weights."""
    return [rng.standard_normal(shape).astype(dtype) for shape in ((B, H, T_q, T_k), (H,), (B, H, T_q, T_k))]


def test_softcap_keeps_small_scores_and_bounds_large_ones() -> None:
    x = np.array([-1e300, -1e-3, 0.0, 1e-3, 1e300, np.inf])
    y, cache = na.softcap(x, 50.0)
    np.testing.assert_allclose(y, [-50.0, -1e-3, 0.0, 1e-3, 50.0, 50.0], rtol=1e-9)
    np.testing.assert_allclose(na.softcap_backward(np.ones(6), cache), [0, 1, 1, 1, 0, 0], atol=1e-9)
    for dtype in (np.float32, np.float64):
        x = np.array([-np.finfo(dtype).max, 0.0, np.finfo(dtype).max], dtype)
        y, cache = na.softcap(x, 1e-30)  # x / cap overflows
        np.testing.assert_array_equal(y, np.array([-1e-30, 0.0, 1e-30], dtype))
        np.testing.assert_array_equal(cache, [0.0, 1.0, 0.0])
        np.testing.assert_allclose(na.softcap(np.array([-3.0, 0.5], dtype), 1e30)[0], [-3.0, 0.5], rtol=1e-6)


def test_sink_is_one_more_column_of_an_ordinary_softmax(rng: np.random.Generator) -> None:
    scores, sink, dy = draw(rng)
    column = np.broadcast_to(sink[:, None, None], (B, H, T_q, 1))
    y, cache = na.softmax(np.concatenate([scores, column], axis=-1))
    weights, sink_cache = na.softmax_with_sink(scores, sink)
    np.testing.assert_allclose(weights, y[..., :-1], rtol=1e-15)
    np.testing.assert_allclose(weights.sum(axis=-1, keepdims=True), 1.0 - sink_cache.sink_weight, rtol=1e-14)
    longer = na.softmax_backward(np.concatenate([dy, np.zeros((B, H, T_q, 1))], axis=-1), cache)
    dscores, dsink = na.softmax_with_sink_backward(dy, sink_cache)
    np.testing.assert_allclose(dscores, longer[..., :-1], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(dsink, longer[..., -1].sum(axis=(0, 2)), rtol=1e-12)


def test_constant_added_to_scores_and_sink_changes_nothing(rng: np.random.Generator) -> None:
    scores, sink, dy = draw(rng)
    weights, cache = na.softmax_with_sink(scores, sink)
    np.testing.assert_allclose(na.softmax_with_sink(scores + 700.0, sink + 700.0)[0], weights, rtol=1e-12)
    dscores, dsink = na.softmax_with_sink_backward(dy, cache)
    np.testing.assert_allclose(dsink, -dscores.sum(axis=(0, 2, 3)), rtol=1e-12)  # so all gradients sum to zero


def test_sink_of_minus_infinity_is_no_sink_and_large_sink_turns_the_head_off(rng: np.random.Generator) -> None:
    scores, _, dy = draw(rng)
    scores[0, 1, 2] = -np.inf
    weights, cache = na.softmax_with_sink(scores, np.array([-np.inf, 0.0, 1000.0]))
    plain, plain_cache = na.softmax(scores)
    np.testing.assert_allclose(weights[:, 0], plain[:, 0], rtol=1e-15)
    assert not weights[:, 2].any()
    dscores, dsink = na.softmax_with_sink_backward(dy, cache)
    np.testing.assert_allclose(dscores[:, 0], na.softmax_backward(dy, plain_cache)[:, 0], rtol=1e-12, atol=1e-15)
    assert not dscores[:, 2].any()
    assert dsink[0] == 0.0
    assert dsink[2] == 0.0


@pytest.mark.parametrize("attention", [na.tamed_attention, na.tamed_tiled_attention])
def test_hidden_query_gets_zeros_and_passes_zero_gradient_with_a_sink(rng: np.random.Generator, attention: Any) -> None:
    shapes = (B, H, T_q, d_k), (B, H, T_k, d_k), (B, H, T_k, d_v), (H,), (B, H, T_q, d_v)
    q, k, v, sink, dy = (rng.standard_normal(shape) for shape in shapes)
    y, cache = attention(q, k, v, mask=np.zeros((T_q, T_k), bool), softcap=2.0, sink=sink)
    backward = getattr(na, f"{attention.__name__}_backward")
    assert not y.any()
    assert not any(grad.any() for grad in backward(dy, cache) if grad is not None)


def test_only_the_sinks_of_used_heads_get_a_gradient(rng: np.random.Generator) -> None:
    scores, sink, dy = draw(rng)
    dy[:, 1] = 0.0
    dsink = na.softmax_with_sink_backward(dy, na.softmax_with_sink(scores, sink)[1])[1]
    assert (dsink != 0.0).tolist() == [True, False, True]


def test_bias_is_added_after_softcap(rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal(shape) for shape in ((T_q, d_k), (T_k, d_k), (T_k, d_v)))
    bias, mask = 100.0 * np.eye(T_q, T_k), np.ones((T_q, T_k), bool)
    y, cache = na.tamed_attention(q, k, v, mask, bias, softcap=1.0)
    np.testing.assert_allclose(y, v[:T_q], rtol=1e-12)  # a cap on the bias would leave weight for other keys
    scores = na.softcap(q @ k.T / np.sqrt(d_k), 1.0)[0] + bias
    np.testing.assert_allclose(cache.weights, na.softmax(scores)[0], rtol=1e-12)


def test_gate_opens_from_zero_to_one(rng: np.random.Generator) -> None:
    x, gate = rng.standard_normal((2, 3, 5)), np.array([[-np.inf], [0.0], [np.inf]])
    y, cache = na.sigmoid_gate(x, gate)
    np.testing.assert_array_equal(y, x * [[0.0], [0.5], [1.0]])
    dx, dgate = na.sigmoid_gate_backward(np.ones_like(x), cache)
    np.testing.assert_array_equal(dx, np.broadcast_to([[0.0], [0.5], [1.0]], x.shape))
    np.testing.assert_allclose(dgate, [[0.0], [x[:, 1].sum() / 4], [0.0]], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32])
def test_narrow_dtypes_lose_no_digits_in_sums(dtype: type) -> None:
    scores, sink = np.zeros((1, 1, 3000), dtype), np.full(1, 6.0, dtype)
    weights, cache = na.softmax_with_sink(scores, sink)
    np.testing.assert_allclose(weights, 1.0 / (3000.0 + np.exp(6.0)), rtol=1e-3)
    dscores, dsink = na.softmax_with_sink_backward(np.ones_like(scores), cache)
    p = np.exp(6.0) / (3000.0 + np.exp(6.0))
    np.testing.assert_allclose(dsink, -p * (1.0 - p), rtol=2e-3)
    assert (weights.dtype, dscores.dtype, dsink.dtype) == (dtype,) * 3


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_empty_axes_give_empty_weights_and_a_sink_gradient_of_zeros(shape: tuple[int, ...]) -> None:
    weights, cache = na.softmax_with_sink(np.ones(shape), np.ones(shape[1]))
    dscores, dsink = na.softmax_with_sink_backward(weights, cache)
    assert weights.shape == dscores.shape == shape
    np.testing.assert_array_equal(dsink, np.zeros(shape[1]))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: na.softcap(np.ones(2), 0), ValueError, r"softcap: cap must be in \[1e-30, 1e\+30\], got 0"),
    (lambda: na.softmax_with_sink(np.ones((2, 3)), np.ones(2)), ValueError,
     r"scores must be \(\.\.\., H, T_q, T_k\), got \(2, 3\); with a single head add an axis"),
    (lambda: na.softmax_with_sink(np.ones((4, 2, 3)), np.ones((4, 1))), ValueError, r"got \(4, 1\)"),
    (lambda: na.softmax_with_sink(np.ones((4, 2, 3)), np.ones(4, np.float32)), TypeError, "sink must be float64"),
    (lambda: na.sigmoid_gate(np.ones((2, 3)), np.ones((2, 2))), ValueError, r"to .* = \(2, 3\), got \(2, 2"),
    (lambda: na.sigmoid_gate(np.ones(3), np.ones((2, 3))), ValueError, r"broadcastable to .* = \(3,\), got \(2, 3"),
], ids=["cap of 0", "no head axis", "sink of two axes", "two dtypes", "gate of another width", "gate wider than x"])
def test_refuses_wrong_arguments(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("attention", [na.tamed_attention, na.tamed_tiled_attention])
def test_refuses_an_invalid_cap_or_sink_by_name(attention: Any) -> None:
    q = np.ones((2, 3, 4))
    for options, words in (
        ({"softcap": 0.0}, r"softcap must be in \[1e-30, 1e\+30\], got 0.0"),
        ({"sink": np.ones(3)}, r"sink must be \(H_q,\) with H_q = 2 as in q \(2, 3, 4\), got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=f"{attention.__name__}: {words}"):
            attention(q, q, q, **options)
    with pytest.raises(ValueError, match="with a sink, q needs an axis of heads"):
        attention(q[0], q[0], q[0], sink=np.ones(1))
