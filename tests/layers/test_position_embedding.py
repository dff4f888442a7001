"""Vectors for positions: learned rows, or sines and cosines."""

import numpy as np
import pytest

import numpy_attention as na


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_all_sequences_add_the_same_rows(kind, rng):
    layer = na.PositionEmbedding(kind, 6, 4, rng, np.float64)
    x = rng.standard_normal((3, 5, 4))
    added = layer.forward(x)[0] - x
    expected = layer.table[:5] if kind == "learned" else na.sinusoidal_positions(5, 4, np.float64)
    np.testing.assert_allclose(added, np.broadcast_to(expected, (3, 5, 4)), atol=1e-12)


def test_given_positions_read_their_rows_and_add_gradients_there(rng):
    layer = na.PositionEmbedding("learned", 6, 4, rng, np.float64)
    x, positions = rng.standard_normal((2, 3, 4)), np.array([[0, 0, 1], [2, 3, 4]])
    y, cache = layer.forward(x, positions)
    np.testing.assert_allclose(y, x + layer.table[positions])
    dy = rng.standard_normal(y.shape)
    _, grads = layer.backward(dy, cache)
    np.testing.assert_allclose(grads["table"][0], dy[0, 0] + dy[0, 1])
    assert not grads["table"][5].any()


def test_sinusoidal_positions_have_no_parameters(rng):
    layer = na.PositionEmbedding("sinusoidal", 6, 4, rng)
    y, cache = layer.forward(np.ones((1, 3, 4), np.float32))
    assert layer.parameters() == layer.backward(y, cache)[1] == {}


def test_refuses_unknown_kind():
    with pytest.raises(ValueError, match="kind must be one of learned"):
        na.PositionEmbedding("absolute", 4, 8, None)


def test_refuses_positions_that_would_widen_the_batch(rng):
    layer = na.PositionEmbedding("learned", 6, 4, rng, np.float64)
    message = r"positions must be \(3,\) or \(1, 3\), one for each vector of x, got \(2, 3\)"
    with pytest.raises(ValueError, match=message):
        layer.forward(np.zeros((1, 3, 4)), np.array([[0, 1, 2], [1, 2, 3]]))


def test_any_number_of_leading_axes_shares_the_rows(rng):
    layer = na.PositionEmbedding("learned", 6, 4, rng, np.float64)
    for shape in ((3, 4), (2, 5, 3, 4)):
        _, cache = layer.forward(np.zeros(shape))
        dy = rng.standard_normal(shape)
        _, grads = layer.backward(dy, cache)
        np.testing.assert_allclose(grads["table"][:3], dy.reshape(-1, 3, 4).sum(axis=0), rtol=1e-12)
