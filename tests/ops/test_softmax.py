"""Chapter 3: weights that sum to one, and a Jacobian that is never built."""

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float32, np.float64]


def test_rows_are_positive_and_sum_to_one_along_their_axis(rng: np.random.Generator) -> None:
    x = 5 * rng.standard_normal((3, 4, 5))
    for axis in (0, 1, 2, -1, -2):
        y, _ = na.softmax(x, axis)
        assert (y > 0).all()
        np.testing.assert_allclose(y.sum(axis), 1.0)


def test_adding_a_number_to_a_whole_row_changes_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    np.testing.assert_allclose(na.softmax(x + 700.0 * rng.standard_normal((3, 1)))[0], na.softmax(x)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_give_the_softmax_of_their_differences(dtype: type) -> None:
    differences = np.array([0.0, -1.0, -3.0, -4.0, -1e4])
    exact = np.exp(differences) / np.exp(differences).sum()
    y, _ = na.softmax((differences + 2048.0).astype(dtype))
    np.testing.assert_allclose(y, exact, atol=2 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_of_minus_infinity_gets_zeros_and_zero_gradient(rng: np.random.Generator, dtype: type) -> None:
    x = rng.standard_normal((3, 5)).astype(dtype)
    x[1] = -np.inf
    y, cache = na.softmax(x)
    dx = na.softmax_backward(rng.standard_normal((3, 5)).astype(dtype), cache)
    assert not y[1].any()
    assert not dx[1].any()
    assert np.isfinite(dx).all()


def test_backward_is_jacobian_times_dy(rng: np.random.Generator) -> None:
    x, dy = rng.standard_normal((2, 5))
    y, cache = na.softmax(x)
    np.testing.assert_allclose(na.softmax_backward(dy, cache), (np.diag(y) - np.outer(y, y)) @ dy)


def test_rows_of_dx_sum_to_zero_and_dy_of_ones_gives_zero(rng: np.random.Generator) -> None:
    y, cache = na.softmax(rng.standard_normal((3, 4, 5)), axis=1)
    dx = na.softmax_backward(rng.standard_normal(y.shape), cache)
    assert np.abs(dx).max() > 0.01
    np.testing.assert_allclose(dx.sum(axis=1), 0.0, atol=1e-15)
    np.testing.assert_allclose(na.softmax_backward(np.ones_like(y), cache), 0.0, atol=1e-15)


@pytest.mark.parametrize(("shape", "axis"), [((), -1), ((3, 0), -1), ((3, 4), 2)])
def test_refuses_empty_axis(shape: tuple[int, ...], axis: int) -> None:
    for op in (na.softmax, na.log_softmax):
        with pytest.raises(ValueError, match=rf"^{op.__name__}: x must be an array with at least one element along"):
            op(np.ones(shape), axis)


def test_log_softmax_is_logarithm_of_softmax(rng: np.random.Generator) -> None:
    x, dy = rng.standard_normal((2, 3, 4, 5)).swapaxes(1, 2)
    for axis in (0, 1, -1):
        y, cache = na.log_softmax(x, axis)
        weights, weights_cache = na.softmax(x, axis)
        np.testing.assert_allclose(y, np.log(weights), rtol=1e-12)
        through_both = na.softmax_backward(dy / weights, weights_cache)
        np.testing.assert_allclose(na.log_softmax_backward(dy, cache), through_both, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_softmax_is_finite_where_softmax_is_rounded_to_zero(dtype: type) -> None:
    y, cache = na.log_softmax(np.array([1e4, 0.0, -1e4], dtype))
    np.testing.assert_array_equal(y, [0.0, -1e4, -2e4])
    np.testing.assert_array_equal(na.log_softmax_backward(np.array([0.0, 0.0, -1.0], dtype), cache), [1.0, 0.0, -1.0])
    assert y.dtype == cache.y.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_softmax_of_hidden_scores_is_minus_infinity_without_nan(dtype: type) -> None:
    x = np.array([[1.0, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf]], dtype)
    y, cache = na.log_softmax(x)
    half = dtype(-np.log(2.0))
    np.testing.assert_array_equal(y, [[half, -np.inf, half], [-np.inf, -np.inf, -np.inf]])
    dx = na.log_softmax_backward(np.array([[3.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype), cache)
    np.testing.assert_allclose(dx, [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]], atol=2 * float(np.finfo(dtype).eps))
