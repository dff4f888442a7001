"""Where numbers become very large or very small: right to the precision of each dtype, and no warning."""

import math

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float16, np.float32, np.float64]


def far_and_near(dtype: type) -> np.ndarray:
    return np.concatenate([np.linspace(-30.0, 30.0, 241), [-1e4, -100.0, 100.0, 1e4]]).astype(dtype)


def assert_rounded(y: np.ndarray, exact: np.ndarray, parts: float) -> None:
    """Right to some units in the last place, however small the number is."""
    dtype = np.finfo(y.dtype)
    np.testing.assert_allclose(y, exact, rtol=parts * float(dtype.eps), atol=float(dtype.smallest_normal))


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_is_right_in_its_tail(dtype: type) -> None:
    x = far_and_near(dtype)
    logistic = np.array([1 / (1 + math.exp(-v)) if v > -700 else 0.0 for v in x.astype(float)])
    y, slope = na.silu(x)
    assert_rounded(y, x.astype(float) * logistic, 4)
    exact_slope = logistic + x.astype(float) * logistic * (1 - logistic)
    np.testing.assert_allclose(slope, exact_slope, atol=8 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_exact_gelu_is_the_normal_distribution(dtype: type) -> None:
    x = far_and_near(dtype)
    normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(float)])
    y, _ = na.gelu(x, approximate="none")
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(y, x.astype(float) * normal, rtol=8 * eps, atol=30 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_far_out_gelu_is_zero_or_the_identity(dtype: type, approximate: str) -> None:
    x = np.array([-1e4, -300.0, 300.0, 1e4], dtype)
    y, slope = na.gelu(x, approximate)
    np.testing.assert_array_equal(y, np.maximum(x, 0.0))
    np.testing.assert_array_equal(slope, x > 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_error_function_to_the_last_digits(dtype: type) -> None:
    x = far_and_near(dtype) / dtype(4)
    exact = np.array([math.erf(v) for v in x.astype(float)])
    np.testing.assert_allclose(na.ops.erf(x), exact, rtol=4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_softmax_of_large_scores_is_that_of_their_differences(dtype: type) -> None:
    differences = np.array([0.0, -1.0, -3.0, -4.0, -1e4])
    exact = np.exp(differences) / np.exp(differences).sum()
    y, _ = na.softmax((differences + 2048.0).astype(dtype))
    np.testing.assert_allclose(y, exact, atol=2 * float(np.finfo(dtype).eps))
