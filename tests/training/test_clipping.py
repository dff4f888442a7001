"""The joint norm of all gradients, and its limit."""

import numpy as np
import pytest

from numpy_attention.training.c25_optimizers import Adam
from numpy_attention.training.c25a_clipping import clip_by_global_norm
from numpy_attention.training.c28_loop import take_step


def test_clipping_scales_all_gradients_by_one_factor():
    grads = {"a": np.array([[3.0, 0.0]]), "b": np.array([0.0, 4.0, 12.0])}  # joint norm 13
    norm = clip_by_global_norm(grads, 6.5)
    assert norm == pytest.approx(13.0, rel=1e-15)
    np.testing.assert_allclose(grads["a"], [[1.5, 0.0]], rtol=1e-15)
    np.testing.assert_allclose(grads["b"], [0.0, 2.0, 6.0], rtol=1e-15)


def test_short_and_zero_gradients_are_not_changed():
    g = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    grads = {"w": g.copy()}
    clip_by_global_norm(grads, 100.0)
    np.testing.assert_array_equal(grads["w"], g)
    assert grads["w"].dtype == np.float32
    zero = {"w": np.zeros(3)}
    assert clip_by_global_norm(zero, 1.0) == 0.0
    np.testing.assert_array_equal(zero["w"], 0.0)


@pytest.mark.parametrize(("value", "dtype"), [(1e20, np.float32), (1e38, np.float32), (1e-30, np.float32),
                                              (1e200, np.float64), (-1e-200, np.float64)])  # fmt: skip
def test_squares_of_extreme_gradients_neither_overflow_nor_vanish(value, dtype):
    grads = {"w": np.full((4, 20), value, dtype), "b": np.full(20, value, dtype), "empty": np.zeros((0, 3), dtype)}
    bound = min(1.0, abs(value))
    norm = clip_by_global_norm(grads, bound)
    assert norm == pytest.approx(10 * abs(value), rel=1e-6)
    np.testing.assert_allclose(grads["w"], np.sign(value) * bound / 10, rtol=1e-6)
    assert (grads["w"].dtype, grads["b"].dtype) == (dtype, dtype)


def test_without_clipping_a_gradient_whose_square_overflows_is_not_used():
    """Adam's mean square would be infinite, and stay so: these elements would never move again."""
    parameters, grads = {"w": np.zeros(100, np.float32)}, {"w": np.full(100, 1e20, np.float32)}
    optimizer = Adam(parameters)
    assert take_step(optimizer, np.float32(1.0), grads, learning_rate=0.5, clip=0.0) == (1.0, np.inf)
    assert optimizer.steps == 0
    take_step(optimizer, np.float32(1.0), {"w": np.full(100, 1e17, np.float32)}, learning_rate=0.5, clip=0.0)
    np.testing.assert_allclose(parameters["w"], -0.5, rtol=1e-6)
