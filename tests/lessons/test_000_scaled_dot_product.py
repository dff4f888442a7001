"""Lesson 000: scaled dot-product attention with a mask of zeros and ones, batch 2, length 3, d_k 4."""

import itertools

import numpy as np
import pytest

import numpy_attention as na

B, T, D_K = 2, 3, 4


def as_in_the_lesson(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The code of the lesson: a score becomes -1e9 where the mask is 0."""
    scores = np.einsum("...qd,...kd->...qk", q, k) / np.sqrt(np.float64(q.shape[-1]))
    scores = np.where(mask == 0, -1e9, scores)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return np.einsum("...qk,...kd->...qd", weights, v), weights


@pytest.fixture
def qkv(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((3, B, T, D_K))


def all_masks() -> list[np.ndarray]:
    """All 64 masks of shape (2, 1, 3); fifteen of them hide a whole sequence."""
    return [np.array(bits).reshape(B, 1, T) for bits in itertools.product((0, 1), repeat=B * T)]


def test_every_mask_gives_the_lessons_values_for_rows_with_a_visible_key(qkv: np.ndarray) -> None:
    for mask in all_masks():
        values, cache = na.scaled_dot_product_attention(*qkv, mask=mask.astype(bool))
        expected_values, expected_weights = as_in_the_lesson(*qkv, mask)
        sees = mask.any(axis=-1)[:, 0]  # (B,): the mask is the same for all queries of a sequence
        np.testing.assert_allclose(values[sees], expected_values[sees], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(cache.weights[sees], expected_weights[sees], rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(cache.weights[sees].sum(axis=-1), 1.0, rtol=1e-14)


def test_a_fully_masked_row_gives_zeros_where_the_lesson_averages_the_padding(qkv: np.ndarray) -> None:
    mask = np.array([[[1, 0, 1]], [[0, 0, 0]]])
    values, cache = na.scaled_dot_product_attention(*qkv, mask=mask.astype(bool))
    lesson_values, lesson_weights = as_in_the_lesson(*qkv, mask)
    np.testing.assert_allclose(lesson_weights[1], 1 / 3)  # equal scores give equal weights
    np.testing.assert_allclose(lesson_values[1], np.tile(qkv[2, 1].mean(axis=0), (T, 1)))
    assert np.all(values[1] == 0.0)
    assert np.all(cache.weights[1] == 0.0)
