"""The affine map with its own weights."""

import numpy as np
import pytest

import numpy_attention as na


def test_it_is_the_function_on_its_own_weights(rng):
    layer = na.Linear(4, 3, rng, dtype=np.float64)
    layer.b[...] = rng.standard_normal(3)
    x = rng.standard_normal((2, 5, 4))
    np.testing.assert_array_equal(layer.forward(x)[0], na.linear(x, layer.w, layer.b)[0])


def test_initial_weights_have_the_scale_of_glorot(rng):
    layer = na.Linear(80, 120, rng)
    assert layer.w.std() == pytest.approx(np.sqrt(2 / 200), rel=0.05)
    assert not layer.b.any()


def test_without_a_bias_there_is_no_parameter_and_no_gradient_for_it(rng):
    layer = na.Linear(4, 3, rng, bias=False)
    y, cache = layer.forward(np.ones((2, 4), np.float32))
    assert list(layer.parameters()) == list(layer.backward(y, cache)[1]) == ["w"]
