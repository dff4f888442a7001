"""The residual connection: both pictures of its chapter, and a residual stream without weights."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.c19_residual import residual, residual_backward
from tests.layers.gradients import assert_gradient, randomized


def parts(rng):
    norm, sublayer = (randomized(layer, rng) for layer in (na.LayerNorm(6, dtype=np.float64), linear(rng)))
    return norm, sublayer, rng.standard_normal((2, 3, 6))


def linear(rng):
    return na.Linear(6, 6, rng, dtype=np.float64)


def zero_linear(rng):
    layer = linear(rng)
    layer.w[...] = 0.0
    return layer


def test_pre_norm_is_x_plus_the_sublayer_of_the_norm(rng):
    norm, sublayer, x = parts(rng)
    y, _ = residual(x, norm, sublayer, True, 0.0, None)
    np.testing.assert_allclose(y, x + sublayer.forward(norm.forward(x)[0])[0], rtol=1e-13)


def test_post_norm_is_the_norm_of_x_plus_the_sublayer(rng):
    norm, sublayer, x = parts(rng)
    y, _ = residual(x, norm, sublayer, False, 0.0, None)
    np.testing.assert_allclose(y, norm.forward(x + sublayer.forward(x)[0])[0], rtol=1e-13)


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_gradients_agree_with_central_differences(pre_norm, rate, rng):
    norm, sublayer, x = parts(rng)

    def forward():
        return residual(x, norm, sublayer, pre_norm, rate, np.random.default_rng(2))

    y, cache = forward()
    dy = rng.standard_normal(y.shape)
    dx, norm_grads, grads = residual_backward(dy, cache, norm, sublayer, pre_norm)
    owned = [(norm.gamma, norm_grads["gamma"]), (norm.beta, norm_grads["beta"]), (sublayer.w, grads["w"])]
    for p, gradient in [(x, dx), *owned, (sublayer.b, grads["b"])]:
        assert_gradient(lambda: float((forward()[0] * dy).sum()), p, gradient, rng)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_dropout_acts_on_the_branch_and_not_on_the_residual_stream(pre_norm, rng):
    norm, sublayer, x = parts(rng)
    sublayer.w[...], sublayer.b[...] = 0.0, 1.0
    y, _ = residual(x, norm, sublayer, pre_norm, 0.5, np.random.default_rng(4))
    kept = np.random.default_rng(4).random(x.shape, dtype=np.float32) >= 0.5
    h = x + 2.0 * kept
    np.testing.assert_allclose(y, h if pre_norm else norm.forward(h)[0], rtol=1e-13)


def test_branch_of_zeros_leaves_x_and_dy_unchanged(rng):
    sublayer, norm, x = zero_linear(rng), na.LayerNorm(6, dtype=np.float64), rng.standard_normal((2, 3, 6))
    y, cache = residual(x, norm, sublayer, True, 0.0, None)
    dy = rng.standard_normal(x.shape)
    dx, *_ = residual_backward(dy, cache, norm, sublayer, True)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(dx, dy)
