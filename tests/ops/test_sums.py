"""Chapter 1, appendix: the fast sums equal NumPy's sums."""

import numpy as np
import pytest

from numpy_attention.ops.c01a_sums import dot_in_rows, sum_in_rows, sum_over_rows


@pytest.fixture(params=[np.float32, np.float64])
def strided(request: pytest.FixtureRequest, rng: np.random.Generator) -> np.ndarray:
    """A random array in which no axis is contiguous."""
    return rng.standard_normal((10, 7, 9)).astype(request.param).swapaxes(0, 2)[::2, ::-1, ::3]


def test_sum_over_rows_equals_sum_along_axis_0(strided: np.ndarray) -> None:
    x = strided[:, 3]
    np.testing.assert_allclose(sum_over_rows(x), x.sum(axis=0), rtol=1e-5, atol=1e-6)
    assert sum_over_rows(x).dtype == x.dtype
    np.testing.assert_array_equal(sum_over_rows(x[:0]), np.zeros(x.shape[1]))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_sums_and_dots_in_rows_keep_the_axis(strided: np.ndarray, axis: int) -> None:
    np.testing.assert_allclose(sum_in_rows(strided, axis), strided.sum(axis, keepdims=True), rtol=1e-5, atol=1e-5)
    other = strided[::-1]
    exact = (strided * other).sum(axis, keepdims=True)
    np.testing.assert_allclose(dot_in_rows(strided, other, axis), exact, rtol=1e-5, atol=1e-5)
