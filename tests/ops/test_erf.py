"""Chapter 10, appendix: the error function, where NumPy has none."""

import math

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_right_to_the_last_digits(dtype: type) -> None:
    x = (np.concatenate([np.linspace(-30.0, 30.0, 241), [-1e4, -100.0, 100.0, 1e4]]) / 4).astype(dtype)
    exact = np.array([math.erf(v) for v in x.astype(float)])
    y = na.ops.erf(x)
    np.testing.assert_allclose(y, exact, rtol=4 * float(np.finfo(dtype).eps))
    assert y.dtype == dtype


@pytest.mark.parametrize("seam", [0.46875, 4.0])
def test_the_three_approximations_meet(seam: float) -> None:
    x = np.array([np.nextafter(seam, 0.0), seam, np.nextafter(seam, 10.0)])
    np.testing.assert_allclose(na.ops.erf(x), [math.erf(v) for v in x], rtol=4e-16)


def test_odd_bounded_and_one_at_the_end(rng: np.random.Generator) -> None:
    x = 3.0 * rng.standard_normal((4, 5)).T
    np.testing.assert_array_equal(na.ops.erf(-x), -na.ops.erf(x))
    assert (np.abs(na.ops.erf(x)) <= 1.0).all()
    np.testing.assert_array_equal(na.ops.erf(np.array([-np.inf, -0.0, 0.0, np.inf])), [-1.0, 0.0, 0.0, 1.0])


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="erf: x must be an array of floats, got int64"):
        na.ops.erf(np.array([1]))
