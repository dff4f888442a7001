"""Norm layers start as the plain normalization and can learn a scale and a shift."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.c16_normalization import norm_layer


def test_layer_norm_starts_with_mean_zero_and_variance_one(rng):
    x = 3 + 5 * rng.standard_normal((2, 4, 12))
    y, _ = na.LayerNorm(12, eps=1e-20, dtype=np.float64).forward(x)
    np.testing.assert_allclose(y.mean(axis=-1), 0.0, atol=1e-12)
    np.testing.assert_allclose(y.var(axis=-1), 1.0, rtol=1e-12)


def test_rms_norm_starts_with_root_mean_square_one_and_keeps_directions(rng):
    x = 3 + 5 * rng.standard_normal((2, 4, 12))
    y, _ = na.RMSNorm(12, eps=1e-20, dtype=np.float64).forward(x)
    np.testing.assert_allclose((y * y).mean(axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(y / y[..., :1], x / x[..., :1], rtol=1e-9)


def test_gamma_and_beta_scale_and_shift_each_feature(rng):
    x, gamma, beta = rng.standard_normal((2, 3, 6)), rng.standard_normal(6), rng.standard_normal(6)
    layer = na.LayerNorm(6, dtype=np.float64)
    plain, _ = layer.forward(x)
    layer.gamma[...], layer.beta[...] = gamma, beta
    np.testing.assert_allclose(layer.forward(x)[0], plain * gamma + beta, rtol=1e-12)


@pytest.mark.parametrize(("name", "eps"), [("layer_norm", 1e-5), ("rms_norm", 1e-6)])
def test_norm_layer_has_its_usual_eps_by_default(name, eps):
    assert norm_layer(name, 4).eps == eps
    assert norm_layer(name, 4, 0.1).eps == 0.1


def test_refuses_unknown_norm():
    with pytest.raises(ValueError, match='norm must be "layer_norm" or "rms_norm", got \'batch_norm\''):
        norm_layer("batch_norm", 4)
