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
