"""Chapter 5: forward and backward use one mask; dropout that is off changes nothing."""

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_kept_numbers_are_scaled_up_and_the_others_are_zero(rng: np.random.Generator, dtype: type) -> None:
    x = rng.standard_normal((30, 40)).astype(dtype)
    y, (keep_mask, scale, *_) = na.dropout(x, 0.25, rng)
    assert scale == 1 / 0.75
    np.testing.assert_allclose(y[keep_mask], x[keep_mask] / 0.75, rtol=1e-6)
    assert not y[~keep_mask].any()
    assert y.dtype == dtype


def test_dropout_keeps_the_expectation(rng: np.random.Generator) -> None:
    y, (keep_mask, *_) = na.dropout(np.ones(40_000), 0.3, rng)
    assert abs(keep_mask.mean() - 0.7) < 0.01
    assert abs(y.mean() - 1.0) < 0.02


def test_gradient_has_the_same_mask_and_scale_as_the_forward(rng: np.random.Generator) -> None:
    x, dy = rng.standard_normal((2, 6, 7))
    y, cache = na.dropout(x, 0.4, rng)
    np.testing.assert_allclose(na.dropout_backward(dy, cache) * x, y * dy)


def test_seed_repeats_the_mask_and_two_calls_have_two_masks() -> None:
    x = np.ones((5, 8))
    rng = np.random.default_rng(3)
    first, second = na.dropout(x, 0.5, rng)[0], na.dropout(x, 0.5, rng)[0]
    np.testing.assert_array_equal(na.dropout(x, 0.5, np.random.default_rng(3))[0], first)
    assert (first != second).any()


@pytest.mark.parametrize(("rate", "with_rng"), [(0.0, True), (0.4, False)])
def test_dropout_that_is_off_returns_x_and_dy(rng: np.random.Generator, rate: float, with_rng: bool) -> None:
    x, dy = rng.standard_normal((2, 3, 4)).astype(np.float32)
    y, cache = na.dropout(x, rate, rng if with_rng else None)
    assert y is x
    assert na.dropout_backward(dy, cache) is dy


@pytest.mark.parametrize("rate", [1.0, -0.1, 2.0, float("nan")])
def test_refuses_rate_outside_zero_to_one(rng: np.random.Generator, rate: float) -> None:
    with pytest.raises(ValueError, match=r"dropout: rate must be in \[0, 1\)"):
        na.dropout(np.ones(3), rate, rng)


@pytest.mark.parametrize("x", [np.float32(2.0), np.float64(2.0), np.array(2.0)], ids=lambda x: type(x).__name__)
def test_single_number_is_dropped_or_scaled(x: np.ndarray, rng: np.random.Generator) -> None:
    y = np.array([na.dropout(x, 0.5, rng)[0] for _ in range(40)])
    assert set(y.tolist()) == {0.0, 4.0}
    assert y.dtype == x.dtype
