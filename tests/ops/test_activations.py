"""Chapter 10: three activations, accurate far from zero, with the same results in pieces and as a whole."""

import math
from typing import Any

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float32, np.float64]
ALL = {
    "relu": (na.relu, na.relu_backward),
    "gelu": (na.gelu, na.gelu_backward),
    "gelu, erf": (lambda x: na.gelu(x, "none"), na.gelu_backward),
    "silu": (na.silu, na.silu_backward),
    "silu, alpha": (lambda x: na.silu(x, 1.702), na.silu_backward),
}
each_activation = pytest.mark.parametrize(("op", "op_backward"), ALL.values(), ids=ALL)


def far_and_near(dtype: type) -> np.ndarray:
    return np.concatenate([np.linspace(-30.0, 30.0, 241), [-1e4, -100.0, 100.0, 1e4]]).astype(dtype)


@each_activation
def test_activation_acts_on_each_number_separately(rng: np.random.Generator, op: Any, op_backward: Any) -> None:
    x, dy = rng.standard_normal((2, 3, 4, 5))
    y, cache = op(x)
    dx = op_backward(dy, cache)
    for at in np.ndindex(x.shape):
        y_at, cache_at = op(x[at].reshape(1))
        assert y[at] == y_at[0]
        assert dx[at] == op_backward(dy[at].reshape(1), cache_at)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_zeroes_negative_numbers_and_has_slope_zero_at_zero(dtype: type) -> None:
    y, cache = na.relu(np.array([-2.0, -0.0, 0.0, 3.0], dtype))
    np.testing.assert_array_equal(y, [0.0, 0.0, 0.0, 3.0])
    np.testing.assert_array_equal(na.relu_backward(np.full(4, 5.0, dtype), cache), [0.0, 0.0, 0.0, 5.0])
    assert y.dtype == dtype


@pytest.mark.parametrize("name", ["gelu", "gelu, erf", "silu", "silu, alpha"])
def test_values_at_x_and_minus_x_differ_by_x(rng: np.random.Generator, name: str) -> None:
    """x P(x) + x P(-x) = x, since the two probabilities sum to one."""
    op, _ = ALL[name]
    x = rng.standard_normal(50)
    np.testing.assert_allclose(op(x)[0] - op(-x)[0], x)
    np.testing.assert_allclose(op(x)[1].slope + op(-x)[1].slope, 1.0)


def test_two_forms_of_gelu_differ_by_less_than_a_thousandth() -> None:
    x = np.linspace(-6.0, 6.0, 1001)
    difference = np.abs(na.gelu(x)[0] - na.gelu(x, "none")[0]).max()
    assert 4e-4 < difference < 5e-4


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_is_accurate_far_from_zero(dtype: type) -> None:
    x = far_and_near(dtype)
    logistic = np.array([1 / (1 + math.exp(-v)) if v > -700 else 0.0 for v in x.astype(float)])
    y, cache = na.silu(x)
    parts = np.finfo(dtype)
    np.testing.assert_allclose(y, x.astype(float) * logistic, rtol=4 * float(parts.eps),
                               atol=float(parts.smallest_normal))
    exact_slope = logistic + x.astype(float) * logistic * (1 - logistic)
    np.testing.assert_allclose(cache.slope, exact_slope, atol=8 * float(parts.eps))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_gelu_is_x_times_normal_distribution(dtype: type) -> None:
    x = far_and_near(dtype)
    normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(float)])
    y, _ = na.gelu(x, approximate="none")
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(y, x.astype(float) * normal, rtol=8 * eps, atol=30 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slope_of_exact_gelu_is_distribution_plus_x_times_density(dtype: type) -> None:
    x = far_and_near(dtype)
    wide = x.astype(float)
    normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
    exact = normal + wide * np.exp(-0.5 * wide * wide) / math.sqrt(2.0 * math.pi)
    slope = na.gelu(x, approximate="none")[1].slope
    np.testing.assert_allclose(slope, exact, rtol=0, atol=4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_gelu_far_from_zero_is_zero_or_identity(dtype: type, approximate: str) -> None:
    x = np.array([-1e4, -300.0, 300.0, 1e4], dtype)
    y, cache = na.gelu(x, approximate)
    np.testing.assert_array_equal(y, np.maximum(x, 0.0))
    np.testing.assert_array_equal(cache.slope, x > 0)


def test_refuses_unknown_form_of_gelu() -> None:
    with pytest.raises(ValueError, match=r"""gelu: approximate must be "tanh" or "none" .*, got 'sigmoid'"""):
        na.gelu(np.ones(3), approximate="sigmoid")


@pytest.mark.parametrize("approximate", ["tanh", "none"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_of_numbers_with_overflowing_squares_is_identity_or_zero(dtype: type, approximate: str) -> None:
    big = np.finfo(dtype).max
    for size in (big, big / dtype(2), dtype(1e4), dtype(100.5)):
        y, cache = na.gelu(np.array([size, -size]), approximate)
        np.testing.assert_array_equal(y, np.array([size, 0], dtype))
        np.testing.assert_array_equal(na.gelu_backward(np.ones(2, dtype), cache), np.array([1, 0], dtype))


@pytest.mark.parametrize("alpha", [-2.5, 0.0, 0.5, 1.702, np.float64(3.0), 40])
def test_silu_with_alpha_is_a_scaled_silu(rng: np.random.Generator, alpha: float) -> None:
    """alpha x s(alpha x) is the silu of alpha x."""
    x = rng.standard_normal(50).astype(np.float32)
    y, cache = na.silu(x, alpha)
    scaled, scaled_cache = na.silu(np.float32(alpha) * x)
    np.testing.assert_allclose(alpha * y, scaled, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(cache.slope, scaled_cache.slope, rtol=1e-5, atol=1e-6)
    assert y.dtype == cache.slope.dtype == np.float32


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_with_large_alpha_is_relu(dtype: type) -> None:
    x = np.array([-300.0, -1.0, 0.0, 1.0, 300.0], dtype)
    y, cache = na.silu(x, alpha=1000.0)
    np.testing.assert_array_equal(y, np.maximum(x, 0.0))
    np.testing.assert_array_equal(cache.slope, [0.0, 0.0, 0.5, 1.0, 1.0])


@pytest.mark.parametrize("alpha", [np.inf, np.nan, "1", None])
def test_silu_refuses_alpha_that_is_not_a_finite_number(alpha: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^silu: alpha must be"):
        na.silu(np.ones(3), alpha)
