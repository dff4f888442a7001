"""Chapter 9: mean 0 and variance 1, and the two directions that a norm removes from the gradient."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float32, np.float64]


def draw(rng: np.random.Generator, dtype: Any = np.float64) -> list[np.ndarray]:
    """Random x with rows of many sizes, gamma, beta, and a gradient of the result."""
    x = 3.0 + rng.standard_normal((4, 5, 7)) * rng.uniform(0.5, 5.0, (4, 5, 1))
    return [array.astype(dtype) for array in (x, *rng.standard_normal((2, 7)), rng.standard_normal(x.shape))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_gives_mean_zero_and_variance_one(rng: np.random.Generator, dtype: type) -> None:
    x, *_ = draw(rng, dtype)
    y, _ = na.layer_norm(x, np.ones(7, dtype), np.zeros(7, dtype), eps=1e-9)
    np.testing.assert_allclose(y.mean(axis=-1), 0.0, atol=1e-6)
    np.testing.assert_allclose(y.var(axis=-1), 1.0, rtol=1e-5)
    assert y.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_gives_root_mean_square_one_and_keeps_the_mean(rng: np.random.Generator, dtype: type) -> None:
    x, *_ = draw(rng, dtype)
    y, _ = na.rms_norm(x, np.ones(7, dtype), eps=1e-9)
    np.testing.assert_allclose((y**2).mean(axis=-1), 1.0, rtol=1e-5)
    assert (np.abs(y.mean(axis=-1)) > 0.1).any()


def test_layer_norm_ignores_shift_and_scale_of_a_row(rng: np.random.Generator) -> None:
    x, gamma, beta, _ = draw(rng)
    factor, shift = rng.uniform(0.5, 2.0, (2, 4, 5, 1))
    expected = na.layer_norm(x, gamma, beta, eps=1e-14)[0]
    np.testing.assert_allclose(na.layer_norm(factor * x + shift, gamma, beta, eps=1e-14)[0], expected)
    np.testing.assert_allclose(na.rms_norm(factor * x, gamma, eps=1e-14)[0], na.rms_norm(x, gamma, eps=1e-14)[0])
    assert not np.allclose(na.rms_norm(x + shift, gamma)[0], na.rms_norm(x, gamma)[0])


def test_dx_has_no_part_along_the_directions_that_the_norm_removes(rng: np.random.Generator) -> None:
    x, gamma, beta, dy = draw(rng)
    _, cache = na.layer_norm(x, gamma, beta, eps=1e-14)
    dx, _, _ = na.layer_norm_backward(dy, cache)
    np.testing.assert_allclose(dx.sum(axis=-1), 0.0, atol=1e-12)
    np.testing.assert_allclose((dx * cache.x_hat).sum(axis=-1), 0.0, atol=1e-10)
    _, cache = na.rms_norm(x, gamma, eps=1e-14)
    dx, _ = na.rms_norm_backward(dy, cache)
    np.testing.assert_allclose((dx * cache.x_hat).sum(axis=-1), 0.0, atol=1e-10)
    assert (np.abs(dx.sum(axis=-1)) > 1e-3).any()


def test_backward_multiplies_by_gamma_before_taking_means(rng: np.random.Generator) -> None:
    x, gamma, beta, dy = draw(rng)
    ones = np.ones(7)
    dx, _, _ = na.layer_norm_backward(dy, na.layer_norm(x, gamma, beta)[1])
    np.testing.assert_allclose(dx, na.layer_norm_backward(dy * gamma, na.layer_norm(x, ones, beta)[1])[0])
    assert not np.allclose(dx, gamma * na.layer_norm_backward(dy, na.layer_norm(x, ones, beta)[1])[0])


def test_gradients_of_gamma_and_beta_are_sums_over_rows(rng: np.random.Generator) -> None:
    x, gamma, beta, dy = draw(rng)
    _, cache = na.layer_norm(x, gamma, beta)
    _, dgamma, dbeta = na.layer_norm_backward(dy, cache)
    np.testing.assert_allclose(dbeta, dy.sum(axis=(0, 1)))
    np.testing.assert_allclose(dgamma, (dy * cache.x_hat).sum(axis=(0, 1)))


def test_constant_vector_gives_beta_and_finite_gradient(rng: np.random.Generator) -> None:
    gamma, beta, dy = rng.standard_normal((3, 7))
    y, cache = na.layer_norm(np.full(7, 2.5), gamma, beta)
    np.testing.assert_array_equal(y, beta)
    assert all(np.isfinite(grad).all() for grad in na.layer_norm_backward(dy, cache))
    y, cache = na.rms_norm(np.zeros(7), gamma)
    assert not y.any()
    assert all(np.isfinite(grad).all() for grad in na.rms_norm_backward(dy, cache))


@pytest.mark.parametrize(("dtype", "large"), [(np.float32, 3e19), (np.float64, 3e154)])
def test_row_whose_squares_overflow_is_nan_and_other_rows_are_unchanged(dtype: type, large: float) -> None:
    x = np.array([[1.0, 2.0, -4.0], [1.0, 2.0, -4.0]], dtype) * np.array([[1.0], [large]], dtype)
    gamma, beta = np.array([[0.5, -2.0, 3.0], [1.0, -0.7, 0.2]], dtype)
    for norm, parameters in ((na.layer_norm, (gamma, beta)), (na.rms_norm, (gamma,))):
        y, _ = norm(x, *parameters)
        np.testing.assert_array_equal(y[0], norm(x[0], *parameters)[0])
        assert np.isnan(y[1]).all()


@pytest.mark.parametrize("eps", [0.0, -1e-5])
def test_refuses_eps_that_is_not_positive_and_explains_why(eps: float) -> None:
    why = "eps prevents a division by zero for a constant vector"
    with pytest.raises(ValueError, match=f"layer_norm: eps must be above 0 and finite, got .*; {why}"):
        na.layer_norm(np.ones((2, 7)), np.ones(7), np.ones(7), eps)
    with pytest.raises(ValueError, match="rms_norm: eps must be above 0 and finite"):
        na.rms_norm(np.ones((2, 7)), np.ones(7), eps)


def test_refuses_parameters_of_another_width() -> None:
    with pytest.raises(ValueError, match=r"layer_norm: beta must be \(d,\) with d = 7 as in x \(5, 7\), got \(5, 7\)"):
        na.layer_norm(np.ones((5, 7)), np.ones(7), np.ones((5, 7)))
    with pytest.raises(ValueError, match=r"rms_norm: x must be \(\.\.\., d\) with d at least 1"):
        na.rms_norm(np.ones((5, 0)), np.ones(0))
