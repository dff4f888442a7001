"""Lesson 004: the Keras chapter. A mask in which 1 hides, uniform inputs of batch 64, length 5, d_k = d_v = 64."""

import numpy as np
import pytest

import numpy_attention as na

B, T, D_K, D_V = 64, 5, 64, 64


@pytest.fixture
def qkv(rng: np.random.Generator) -> np.ndarray:
    return rng.random((3, B, T, D_K))


def as_in_the_chapter(q: np.ndarray, k: np.ndarray, v: np.ndarray, blocked: np.ndarray) -> np.ndarray:
    """The code of the chapter: `scores += float("-inf") * mask`."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    with np.errstate(invalid="ignore"):
        scores = scores + float("-inf") * blocked
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def look_ahead(T: int) -> np.ndarray:
    """The look-ahead mask of the chapter: 1 (hidden) above the diagonal."""
    return 1.0 - np.tri(T)


def test_the_output_is_batch_by_length_by_dim_of_values(qkv: np.ndarray) -> None:
    y, cache = na.scaled_dot_product_attention(*qkv)
    assert y.shape == (B, T, D_V)
    e = np.exp(np.einsum("bqd,bkd->bqk", qkv[0], qkv[1]) / 8.0)
    np.testing.assert_allclose(y, np.einsum("bqk,bkd->bqd", e / e.sum(axis=2, keepdims=True), qkv[2]), rtol=1e-12)
    np.testing.assert_allclose(cache.weights, e / e.sum(axis=2, keepdims=True), rtol=1e-12)


def test_uniform_inputs_give_nearly_equal_rows_as_the_chapter_prints(qkv: np.ndarray) -> None:
    """The printed rows differ only in the second digit: all random queries give nearly the same mean of the values."""
    y, _ = na.scaled_dot_product_attention(*qkv)
    assert y.std(axis=1).mean() < 0.15 * qkv[2].std(axis=1).mean()


def test_minus_infinity_times_the_mask_is_nan_wherever_the_mask_does_not_hide(qkv: np.ndarray) -> None:
    with np.errstate(invalid="ignore"):
        product = float("-inf") * look_ahead(T)
    assert np.array_equal(np.isnan(product), look_ahead(T) == 0)
    assert np.isnan(as_in_the_chapter(*qkv, look_ahead(T))).all()


def test_mask_from_blocked_gives_the_causal_mask_of_the_chapter(qkv: np.ndarray) -> None:
    mask = na.mask_from_blocked(look_ahead(T))
    assert np.array_equal(mask, na.causal_mask(T))
    y, cache = na.scaled_dot_product_attention(*qkv, mask=mask)
    assert np.all(cache.weights[:, look_ahead(T) == 1] == 0.0)
    q, k, v = qkv
    for t in range(T):  # the query at t sees keys 0 to t: attention over the prefix
        prefix, _ = na.scaled_dot_product_attention(q[:, t : t + 1], k[:, : t + 1], v[:, : t + 1])
        np.testing.assert_allclose(y[:, t : t + 1], prefix, rtol=1e-12)


def test_mask_without_conversion_hides_the_wrong_half(qkv: np.ndarray) -> None:
    wrong, _ = na.scaled_dot_product_attention(*qkv, mask=look_ahead(T).astype(bool))
    right, _ = na.scaled_dot_product_attention(*qkv, mask=na.mask_from_blocked(look_ahead(T)))
    assert np.all(wrong[:, -1] == 0.0)  # the last query sees no key
    assert np.abs(wrong - right).max() > 0.1


def test_a_padding_mask_of_ones_at_the_padding(qkv: np.ndarray, rng: np.random.Generator) -> None:
    lengths = rng.integers(1, T + 1, B)
    blocked = (np.arange(T) >= lengths[:, None]).astype(np.float32)[:, None, :]  # (B, 1, T), 1 at padding
    assert np.array_equal(na.mask_from_blocked(blocked), na.padding_mask(lengths, T)[:, 0])


def test_the_gradient_with_the_look_ahead_mask(rng: np.random.Generator) -> None:
    q, k = rng.random((2, 2, T, 7))
    v = rng.random((2, T, 3))
    report = na.gradcheck.gradcheck(
        na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward, {"q": q, "k": k, "v": v},
        mask=na.mask_from_blocked(look_ahead(T)),
    )
    assert report.error < 1e-8


def test_no_gradient_reaches_a_later_position(qkv: np.ndarray, rng: np.random.Generator) -> None:
    _, cache = na.scaled_dot_product_attention(*qkv, mask=na.mask_from_blocked(look_ahead(T)))
    dy = np.zeros((B, T, D_V))
    dy[:, 2] = rng.standard_normal((B, D_V))  # only the third output has a gradient
    dq, dk, dv, _ = na.scaled_dot_product_attention_backward(dy, cache)
    assert np.all(dk[:, 3:] == 0.0)
    assert np.all(dv[:, 3:] == 0.0)
    assert np.all(np.abs(dv[:, :3]).max(axis=(0, 2)) > 0.0)
    assert np.all(dq[:, [0, 1, 3, 4]] == 0.0)


def test_cross_attention_takes_keys_and_values_from_the_encoder(rng: np.random.Generator) -> None:
    """The decoder's second attention: queries from the decoder, keys and values from the encoder's output."""
    layer = na.MultiHeadAttention(6, 2, rng, dtype=np.float64)
    target, encoded = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 7, 6))
    y, cache = layer.forward(target, encoded)
    assert y.shape == (2, 3, 6)
    assert cache.attention.weights.shape == (2, 2, 3, 7)
    shuffled = rng.permutation(7)
    np.testing.assert_allclose(layer.forward(target, encoded[:, shuffled])[0], y, rtol=1e-11)
    dy = rng.standard_normal(y.shape)
    dtarget, dencoded, _ = layer.backward(dy, cache)
    assert (dtarget.shape, dencoded.shape) == (target.shape, encoded.shape)
    assert na.gradcheck.gradcheck_layer(layer, {"x": target, "context": encoded}).error < 1e-7
