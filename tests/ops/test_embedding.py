"""Chapter 2: a look-up, and the sum over all places with a token."""

import numpy as np
import pytest

import numpy_attention as na


def test_look_up_equals_linear_map_of_one_hot_rows(rng: np.random.Generator) -> None:
    ids, table, dy = rng.integers(0, 5, (2, 11)), rng.standard_normal((5, 3)), rng.standard_normal((2, 11, 3))
    one_hot = np.eye(5)[ids]
    y, cache = na.embedding(ids, table)
    y_linear, cache_linear = na.linear(one_hot, table)
    np.testing.assert_array_equal(y, y_linear)
    np.testing.assert_allclose(na.embedding_backward(dy, cache), na.linear_backward(dy, cache_linear)[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_of_repeated_token_is_sum_over_its_places(rng: np.random.Generator, dtype: type) -> None:
    ids = rng.integers(0, 5, (13, 4)).T[:, ::2]  # every id many times, not contiguous
    table, dy = rng.standard_normal((7, 3)).astype(dtype), rng.standard_normal((*ids.shape, 3)).astype(dtype)
    dtable = na.embedding_backward(dy, na.embedding(ids, table)[1])
    for token in range(7):
        np.testing.assert_allclose(dtable[token], dy[ids == token].sum(axis=0), rtol=1e-5, atol=1e-6)
    assert dtable.dtype == dtype
    assert not dtable[5:].any()


def test_without_ids_the_gradient_is_zero() -> None:
    y, cache = na.embedding(np.zeros((2, 0), int), np.ones((5, 3)))
    assert y.shape == (2, 0, 3)
    np.testing.assert_array_equal(na.embedding_backward(y, cache), np.zeros((5, 3)))


@pytest.mark.parametrize("ids", [np.array([0, -1]), np.array([[5]]), np.int64(-1), np.int32(5)])
def test_refuses_id_outside_the_table(ids: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"embedding: ids must be integers in \[0, 5\), got (-1|5); the table has"):
        na.embedding(ids, np.ones((5, 3)))


def test_looks_up_a_single_id(rng: np.random.Generator) -> None:
    table = rng.standard_normal((5, 3))
    np.testing.assert_array_equal(na.embedding(np.int64(2), table)[0], table[2])
