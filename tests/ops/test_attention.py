"""Chapter 6: a weighted average of the values, and its gradients."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

B, H, T_q, T_k, d_k, d_v = 2, 3, 4, 6, 5, 7  # all different


def draw(rng: np.random.Generator, num_kv_heads: int = H, dtype: Any = np.float64) -> list[np.ndarray]:
    """Random q, k, v and a gradient of the result."""
    shapes = [(B, H, T_q, d_k), (B, num_kv_heads, T_k, d_k), (B, num_kv_heads, T_k, d_v), (B, H, T_q, d_v)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, dy: np.ndarray, **options: Any) -> tuple[Any, ...]:
    """Return the result, the weights and the gradients."""
    y, cache = na.scaled_dot_product_attention(q, k, v, **options)
    return y, cache.weights, *na.scaled_dot_product_attention_backward(dy, cache)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_the_weights_sum_to_one_and_average_the_values(rng: np.random.Generator, dtype: type) -> None:
    *qkv, dy = draw(rng, dtype=dtype)
    y, weights, *_ = attend(*qkv, dy)
    assert weights.shape == (B, H, T_q, T_k)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(y, np.einsum("bhij,bhjn->bhin", weights, qkv[2]), rtol=1e-4, atol=1e-6)
    assert y.dtype == dtype


def test_default_scale_is_one_over_square_root_of_width(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    expected = attend(q, k, v, dy, scale=d_k**-0.5)
    np.testing.assert_array_equal(attend(q, k, v, dy)[0], expected[0])
    np.testing.assert_allclose(attend(3.0 * q, k, v, dy, scale=d_k**-0.5 / 3.0)[0], expected[0])


def test_equal_keys_give_the_mean_of_the_values(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    y, _, dq, *_ = attend(q, np.broadcast_to(k[..., :1, :], k.shape), v, dy)
    np.testing.assert_allclose(y, np.broadcast_to(v.mean(axis=-2, keepdims=True), y.shape))
    np.testing.assert_allclose(dq, 0.0, atol=1e-14)


def test_shuffled_keys_and_queries_give_shuffled_results(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    y, _, dq, dk, dv, _ = attend(q, k, v, dy)
    keys, queries = rng.permutation(T_k), rng.permutation(T_q)
    shuffled = attend(q[:, :, queries], k[:, :, keys], v[:, :, keys], dy[:, :, queries])
    expected = y[:, :, queries], dq[:, :, queries], dk[:, :, keys], dv[:, :, keys]
    for one, other in zip((shuffled[0], *shuffled[2:5]), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)


def test_query_that_sees_no_key_gets_zeros_and_zero_gradient(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    mask = rng.random((T_q, T_k)) < 0.6
    mask[1] = False
    y, weights, dq, dk, dv, _ = attend(q, k, v, dy, mask=mask)
    assert not y[:, :, 1].any()
    assert not weights[:, :, 1].any()
    assert not dq[:, :, 1].any()
    assert all(np.isfinite(grad).all() for grad in (dq, dk, dv))


def test_hidden_key_gets_zero_weight_and_zero_gradient_whatever_its_values(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    mask = na.padding_mask([4, 6], T_k)
    y, weights, _, dk, dv, _ = attend(q, k, v, dy, mask=mask)
    assert not weights[0, :, :, 4:].any()
    assert not dk[0, :, 4:].any()
    assert not dv[0, :, 4:].any()
    k[0, :, 4:], v[0, :, 4:] = 1e3, -1e3
    np.testing.assert_array_equal(attend(q, k, v, dy, mask=mask)[0], y)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("attention", [
    (na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward),
    (na.tiled_attention, na.tiled_attention_backward),
], ids=["dense", "tiled"])  # fmt: skip
def test_nan_in_a_hidden_key_reaches_only_dq_and_in_a_hidden_value_the_output(attention: Any, rng: Any) -> None:
    """As the docstring says: padding must be filled with finite numbers."""
    op, backward = attention
    q, k, v, dy = (rng.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2), (3, 2)))
    mask = np.arange(5) < 4
    y, cache = op(q, k, v, mask=mask)
    expected = backward(dy, cache)
    odd_k, odd_v = k.copy(), v.copy()
    odd_k[4] = odd_v[4] = np.nan
    found, cache = op(q, odd_k, v, mask=mask)
    np.testing.assert_allclose(found, y, rtol=1e-14)
    dq, dk, dv, *_ = backward(dy, cache)
    assert np.isnan(dq).all()
    np.testing.assert_allclose(dk[:4], expected[1][:4], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(dv, expected[2], rtol=1e-12, atol=1e-15)
    assert np.isnan(op(q, k, odd_v, mask=mask)[0]).all()


def test_dk_uses_transposed_dscores(rng: np.random.Generator) -> None:
    """Scores are square here, so a missing transpose gives no shape error."""
    q, k, v, dy = rng.standard_normal((4, 5, 3))
    _, weights, dq, dk, dv, _ = attend(q, k, v, dy, scale=1.0)
    dweights = dy @ v.T
    dscores = weights * (dweights - (dweights * weights).sum(axis=1, keepdims=True))
    for t in range(5):
        np.testing.assert_allclose(dq[t], sum(dscores[t, j] * k[j] for j in range(5)), atol=1e-14)
        np.testing.assert_allclose(dk[t], sum(dscores[i, t] * q[i] for i in range(5)), atol=1e-14)
        np.testing.assert_allclose(dv[t], sum(weights[i, t] * dy[i] for i in range(5)), atol=1e-14)


@pytest.mark.parametrize("shape", [(B, H, T_q, T_k), (H, 1, T_k), (T_q, 1), (B, 1, T_q, T_k)])
def test_bias_gradient_is_summed_over_broadcast_axes(rng: np.random.Generator, shape: Any) -> None:
    q, k, v, dy = draw(rng)
    bias = rng.standard_normal(shape)
    full = np.broadcast_to(bias, (B, H, T_q, T_k)).copy()
    dbias, dfull = attend(q, k, v, dy, bias=bias)[-1], attend(q, k, v, dy, bias=full)[-1]
    lead = (1,) * (4 - len(shape)) + shape
    axes = tuple(i for i, size in enumerate(lead) if size == 1)
    np.testing.assert_allclose(dbias, dfull.sum(axis=axes, keepdims=True).reshape(shape), atol=1e-13)


def test_bias_of_minus_infinity_acts_as_mask_and_missing_bias_has_no_gradient(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    mask = na.causal_mask(T_q, T_k)
    by_mask, by_bias = attend(q, k, v, dy, mask=mask), attend(q, k, v, dy, bias=np.where(mask, 0.0, -np.inf))
    for one, other in zip(by_mask[:5], by_bias[:5], strict=True):
        np.testing.assert_allclose(one, other)
    assert by_mask[5] is None


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_grouped_heads_equal_repeated_keys_with_summed_gradients(rng: np.random.Generator, num_kv_heads: int) -> None:
    q = rng.standard_normal((B, 4, T_q, d_k))
    k, v = rng.standard_normal((B, num_kv_heads, T_k, d_k)), rng.standard_normal((B, num_kv_heads, T_k, d_v))
    dy, mask = rng.standard_normal((B, 4, T_q, d_v)), rng.random((B, 4, T_q, T_k)) < 0.7
    y, weights, dq, dk, dv, _ = attend(q, k, v, dy, mask=mask)
    group = 4 // num_kv_heads
    repeated = attend(q, k.repeat(group, axis=1), v.repeat(group, axis=1), dy, mask=mask)
    for one, other in zip((y, weights, dq), repeated[:3], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)
    for one, other in zip((dk, dv), repeated[3:5], strict=True):
        np.testing.assert_allclose(one, other.reshape(B, num_kv_heads, group, T_k, -1).sum(axis=2), atol=1e-13)


def test_dv_uses_weights_after_dropout_and_softmax_uses_weights_before(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    y, cache = na.scaled_dot_product_attention(q, k, v, scale=1.0, dropout=0.4, rng=rng)
    dq, _, dv, _ = na.scaled_dot_product_attention_backward(dy, cache)
    np.testing.assert_allclose(cache.weights.sum(axis=-1), 1.0)
    np.testing.assert_allclose(y, cache.dropped @ v)
    np.testing.assert_allclose(dv, cache.dropped.swapaxes(-1, -2) @ dy)
    dweights = na.dropout_backward(dy @ v.swapaxes(-1, -2), cache.dropout)
    dscores = na.softmax_backward(dweights, na.softmax(q @ k.swapaxes(-1, -2))[1])
    np.testing.assert_allclose(dq, dscores @ k, atol=1e-13)


def test_dropout_is_off_without_generator(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng)
    np.testing.assert_array_equal(attend(q, k, v, dy, dropout=0.9)[0], attend(q, k, v, dy)[0])


def test_saturated_scores_select_one_value(rng: np.random.Generator) -> None:
    k = np.eye(T_k)
    v = rng.standard_normal((T_k, d_v))
    y, _ = na.scaled_dot_product_attention(1e4 * k[[2, 0, 5, 2]], k, v)
    np.testing.assert_array_equal(y, v[[2, 0, 5, 2]])


Q, K, V = (2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)


@pytest.mark.parametrize("op", [na.scaled_dot_product_attention, na.tiled_attention])
@pytest.mark.parametrize(("changed", "message"), [
    ({"q": (8,)}, r"q must be \(\.\.\., T_q, d_k\)"),
    ({"k": (2, 4, 8, 5)}, "did you pass k already transposed"),
    ({"k": (2, 4, 5, 7)}, "q and k are compared, so they share d_k"),
    ({"k": (2, 4, 0, 8)}, "to hide keys use a mask"),
    ({"v": (2, 4, 7, 6)}, "every key has one value"),
    ({"v": (4, 5, 6)}, "must come from the same batch"),
    ({"k": (2, 3, 5, 8), "v": (2, 3, 5, 6)}, "H_kv a divisor of H_q = 4 .* grouped heads need H_q % H_kv == 0"),
    ({"k": (3, 4, 5, 8), "v": (3, 4, 5, 6)}, "q, k and v must come from the same batch"),
    ({"q": (4, 3, 8), "k": (2, 5, 8), "v": (2, 5, 6)}, "grouped heads need four axes"),
    ({"mask": (5, 3)}, "did you pass mask transposed"),
    ({"mask": (2, 5)}, r"if each row belongs to one sequence, .* mask\[:, None, None, :\]"),
    ({"mask": (1, 2, 4, 3, 5)}, r"`padding_mask` has an axis of heads; .* remove it: mask\[:, 0\]"),
    ({"mask": (3, 4)}, r"broadcastable to \(\.\.\., H_q, T_q, T_k\) = \(2, 4, 3, 5\), got"),
], ids=str)
def test_refuses_wrong_shapes_and_suggests_a_fix(op: Any, changed: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"q": Q, "k": K, "v": V, **changed}
    arrays = {name: np.ones(shape, bool if name == "mask" else np.float32) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=message) as refusal:
        op(**arrays)
    assert str(refusal.value).startswith(f"{op.__name__}: ")


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_a_mask_of_numbers_is_not_guessed_at(dtype: type) -> None:
    q, k, v = np.ones(Q), np.ones(K), np.ones(V)
    fix = r'1 means "may look", .*; if 1 means "hidden", pass mask_from_blocked\(mask\); if the mask holds 0 and -inf'
    with pytest.raises(TypeError, match=fix):
        na.scaled_dot_product_attention(q, k, v, mask=np.ones((3, 5), dtype))


def test_dtypes_do_not_mix() -> None:
    with pytest.raises(TypeError, match="v must be float32, the dtype of q, got float64"):
        na.scaled_dot_product_attention(np.ones(Q, np.float32), np.ones(K, np.float32), np.ones(V))


def test_a_bias_is_checked_as_a_mask_is() -> None:
    with pytest.raises(ValueError, match=r"bias must be broadcastable to .* = \(2, 4, 3, 5\), got \(3, 4\)"):
        na.scaled_dot_product_attention(np.ones(Q), np.ones(K), np.ones(V), bias=np.ones((3, 4)))
