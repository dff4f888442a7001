"""Vectors that say where: learned rows, or sines and cosines."""

import numpy as np
import pytest

import numpy_attention as na


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_every_sequence_of_a_batch_adds_the_same_rows(kind, rng):
    layer = na.PositionEmbedding(kind, 6, 4, rng, np.float64)
    x = rng.standard_normal((3, 5, 4))
    added = layer.forward(x)[0] - x
    expected = layer.table[:5] if kind == "learned" else na.sinusoidal_positions(5, 4, np.float64)
    np.testing.assert_allclose(added, np.broadcast_to(expected, (3, 5, 4)), atol=1e-12)


def test_shifted_positions_read_other_rows_and_send_their_gradients_there(rng):
    layer = na.PositionEmbedding("learned", 6, 4, rng, np.float64)
    x, positions = rng.standard_normal((2, 3, 4)), np.array([[0, 0, 1], [2, 3, 4]])
    y, cache = layer.forward(x, positions)
    np.testing.assert_allclose(y, x + layer.table[positions])
    dy = rng.standard_normal(y.shape)
    _, grads = layer.backward(dy, cache)
    np.testing.assert_allclose(grads["table"][0], dy[0, 0] + dy[0, 1])
    assert not grads["table"][5].any()


def test_fixed_positions_have_no_parameters(rng):
    layer = na.PositionEmbedding("sinusoidal", 6, 4, rng)
    y, cache = layer.forward(np.ones((1, 3, 4), np.float32))
    assert layer.parameters() == layer.backward(y, cache)[1] == {}


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind must be one of learned"):
        na.PositionEmbedding("absolute", 4, 8, None)
