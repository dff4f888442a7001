"""The table of word vectors: rows are read, and their gradients are summed."""

import numpy as np
import pytest

import numpy_attention as na


def test_embedding_adds_the_gradients_of_a_repeated_id(rng):
    layer = na.Embedding(5, 3, rng, dtype=np.float64)
    y, cache = layer.forward(np.array([[4, 1], [4, 4]]))
    dy = rng.standard_normal(y.shape)
    dx, grads = layer.backward(dy, cache)
    assert dx is None
    np.testing.assert_allclose(grads["table"][4], dy[0, 0] + dy[1, 0] + dy[1, 1])
    assert not grads["table"][[0, 2, 3]].any()


def test_embedding_reads_the_row_of_each_id(rng):
    layer = na.Embedding(5, 3, rng)
    ids = np.array([[4, 1], [0, 4]])
    np.testing.assert_array_equal(layer.forward(ids)[0], layer.table[ids])


def test_table_starts_with_the_given_scale(rng):
    assert na.Embedding(200, 50, rng).table.std() == pytest.approx(0.02, rel=0.05)
    assert na.Embedding(200, 50, rng, scale=0.7).table.std() == pytest.approx(0.7, rel=0.05)
