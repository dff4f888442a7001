"""The feed-forward network: each position by itself."""

import numpy as np
import pytest

import numpy_attention as na


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_exact", "silu", "swiglu", "geglu"])
def test_each_position_is_changed_separately(activation, rng):
    layer = na.FeedForward(6, 7, rng, activation, dtype=np.float64)
    x = rng.standard_normal((2, 5, 6))
    y, _ = layer.forward(x)
    np.testing.assert_allclose(layer.forward(x[1:, 3:4])[0], y[1:, 3:4], rtol=1e-12)


@pytest.mark.parametrize(("activation", "f"), [("swiglu", na.silu), ("geglu", na.gelu)])
def test_gated_form_equals_its_formula(activation, f, rng):
    layer = na.FeedForward(6, 7, rng, activation, dtype=np.float64)
    for p in layer.parameters().values():
        p[...] = rng.standard_normal(p.shape)
    x = rng.standard_normal((2, 5, 6))
    h = f(x @ layer.w_gate + layer.b_gate)[0] * (x @ layer.w_1 + layer.b_1)
    np.testing.assert_allclose(layer.forward(x)[0], h @ layer.w_2 + layer.b_2, rtol=1e-12)


def test_refuses_unknown_activation():
    with pytest.raises(ValueError, match="activation must be one of relu"):
        na.FeedForward(4, 8, None, "tanh")


@pytest.mark.parametrize("activation", [["gelu"], "tanh", 2, None])
def test_refuses_invalid_activation(activation, rng):
    with pytest.raises(ValueError, match="activation must be one of relu, gelu"):
        na.FeedForward(4, 6, rng, activation)
    with pytest.raises(ValueError, match="activation must be one of relu, gelu"):
        na.GPTConfig(5, 4, 8, 2, 1, activation=activation)
