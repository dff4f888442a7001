"""Chapter 10, appendix: the error function, which NumPy does not have."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck.derivative import complex_numbers

DTYPES = [np.float32, np.float64]
ROUND_OFF = {np.float32: 3.0, np.float64: 2.0}  # in eps of the dtype


def all_scales(dtype: type) -> np.ndarray:
    """Both signs, all sizes from the smallest normal number to half the largest, most of them where erf is curved."""
    limits = np.finfo(dtype)
    sizes = np.geomspace(float(limits.smallest_normal), float(limits.max) / 2, 2001)
    x = np.concatenate([sizes, np.linspace(0.0, 7.0, 7001), np.geomspace(1e-3, 7.0, 3001)])
    return np.concatenate([x, -x]).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_erf_is_accurate_to_the_last_digits_at_all_scales(dtype: type) -> None:
    x = all_scales(dtype)
    exact = np.array([math.erf(v) for v in x.astype(float)])
    y = na.ops.erf(x)
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_normal)
    np.testing.assert_allclose(y, exact, rtol=ROUND_OFF[dtype] * eps, atol=tiny * eps)
    seen = np.abs(exact) >= tiny
    assert np.mean(np.abs(y.astype(float)[seen] / exact[seen] - 1.0)) < 0.3 * eps
    assert y.dtype == dtype


def erf_to_thirty_digits(x: float) -> Decimal:
    """2 / sqrt(pi) exp(-x^2) sum_n 2^n x^(2n + 1) / (1 * 3 * ... * (2n + 1)); all terms are positive."""
    pi = Decimal("3.14159265358979323846264338327950288419717")
    term = total = exact = Decimal(x)
    n = 0
    while term > total * Decimal("1e-35"):
        n += 1
        term *= 2 * exact * exact / (2 * n + 1)
        total += term
    return 2 / pi.sqrt() * (-exact * exact).exp() * total


def test_float64_agrees_with_thirty_digits() -> None:
    """math.erf itself is sometimes wrong in the last digit."""
    x = np.concatenate([np.geomspace(1e-300, 6.5, 401), np.linspace(0.01, 6.5, 401)])
    with localcontext(prec=40):
        exact = [erf_to_thirty_digits(float(v)) for v in x]
        error = [float(abs(Decimal(float(y)) / true - 1)) for y, true in zip(na.ops.erf(x), exact, strict=True)]
    assert max(error) < 5e-16


@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_numbers_follow_the_tangent_at_zero(dtype: type) -> None:
    smallest = np.finfo(dtype).smallest_subnormal
    x = np.array([0, 1, 2, 3, 50, 100, 101], dtype) * smallest
    exact = x.astype(float) * (2.0 / math.sqrt(math.pi))
    np.testing.assert_allclose(na.ops.erf(x), exact, rtol=0, atol=float(smallest))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("end", [0.46875, 4.0, 6.0])
def test_erf_has_no_jump_where_an_approximation_ends(dtype: type, end: float) -> None:
    """float64 changes its formula at 0.46875 and 4; float32 was fitted up to 4, and its argument is clipped at 6."""
    x = np.array([np.nextafter(dtype(end), dtype(0)), end, np.nextafter(dtype(end), dtype(10)), end + 0.5], dtype)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(na.ops.erf(x), [math.erf(v) for v in x.astype(float)], rtol=ROUND_OFF[dtype] * eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_erf_beyond_six_is_one_and_nan_stays_nan(dtype: type) -> None:
    y = na.ops.erf(np.array([-np.inf, float(np.finfo(dtype).min), -6.0, 6.0, 300.0, np.inf, np.nan], dtype))
    np.testing.assert_array_equal(y, [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, np.nan])


def test_erf_is_odd_and_bounded_for_arrays_that_are_not_contiguous(rng: np.random.Generator) -> None:
    for dtype in DTYPES:
        x = (3.0 * rng.standard_normal((4, 5))).astype(dtype).T[::-1]
        np.testing.assert_array_equal(na.ops.erf(-x), -na.ops.erf(x))
        np.testing.assert_array_equal(na.ops.erf(x), na.ops.erf(x.copy()))
        assert (np.abs(na.ops.erf(x)) <= 1.0).all()
    assert np.signbit(na.ops.erf(np.array([-0.0, 0.0]))).tolist() == [True, False]


def test_complex_step_gives_the_bell_curve() -> None:
    x = np.linspace(-6.5, 6.5, 1001)
    with complex_numbers():
        derivative = na.ops.erf(x + 1e-100j).imag / 1e-100
    np.testing.assert_allclose(derivative, 2.0 / math.sqrt(math.pi) * np.exp(-x * x), rtol=1e-12)
