"""The affine map with its own weights."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.c14a_project import project, project_backward


def test_linear_layer_applies_linear_to_its_weights(rng):
    layer = na.Linear(4, 3, rng, dtype=np.float64)
    layer.b[...] = rng.standard_normal(3)
    x = rng.standard_normal((2, 5, 4))
    np.testing.assert_array_equal(layer.forward(x)[0], na.linear(x, layer.w, layer.b)[0])


def test_initial_weights_have_the_scale_of_glorot(rng):
    layer = na.Linear(80, 120, rng)
    assert layer.w.std() == pytest.approx(np.sqrt(2 / 200), rel=0.05)
    assert not layer.b.any()


def test_linear_without_bias_has_only_w(rng):
    layer = na.Linear(4, 3, rng, bias=False)
    y, cache = layer.forward(np.ones((2, 4), np.float32))
    assert list(layer.parameters()) == list(layer.backward(y, cache)[1]) == ["w"]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axes", [(), (5,), (2, 5), (2, 3, 5)], ids=str)
def test_layer_in_place_of_a_matrix_gives_the_same_results(axes, bias, rng):
    x, dy = rng.standard_normal((*axes, 4)), rng.standard_normal((*axes, 3))
    w, b = rng.standard_normal((4, 3)), rng.standard_normal(3) if bias else None
    layer = na.Linear(4, 3, None, bias=False, dtype=np.float64)
    layer.w[...] = w
    x_before, dy_before = x.copy(), dy.copy()
    (y, cache), (y_of_layer, cache_of_layer) = project(x, w, b), project(x, layer, b)
    np.testing.assert_array_equal(y_of_layer, y)
    dx, dw, db = project_backward(dy, w, cache)
    dx_of_layer, grads, db_of_layer = project_backward(dy, layer, cache_of_layer)
    np.testing.assert_array_equal(dx_of_layer, dx)
    assert list(grads) == ["w"]
    np.testing.assert_array_equal(grads["w"], dw)
    assert (db is None) == (db_of_layer is None) == (not bias)
    if bias:
        np.testing.assert_array_equal(db_of_layer, db)
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(dy, dy_before)


def test_layer_with_its_own_bias_adds_both_biases(rng):
    layer, b = na.Linear(4, 3, rng, dtype=np.float64), rng.standard_normal(3)
    layer.b[...] = rng.standard_normal(3)
    x, dy = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 3))
    y, cache = project(x, layer, b)
    np.testing.assert_allclose(y, x @ layer.w + layer.b + b, rtol=1e-12)
    _, grads, db = project_backward(dy, layer, cache)
    np.testing.assert_array_equal(grads["b"], db)


def test_project_with_a_matrix_equals_linear(rng):
    x, w, b = rng.standard_normal((2, 5, 4)), rng.standard_normal((4, 3)), rng.standard_normal(3)
    dy = rng.standard_normal((2, 5, 3))
    y, cache = project(x, w, b)
    np.testing.assert_array_equal(y, na.linear(x, w, b)[0])
    for one, other in zip(project_backward(dy, w, cache), na.linear_backward(dy, cache), strict=True):
        np.testing.assert_array_equal(one, other)
