"""Lesson 002: why 1 / sqrt(d_k), measured."""

import math

import numpy as np
import pytest

import numpy_attention as na


@pytest.mark.parametrize("d_k", [4, 64])
def test_variance_of_a_dot_product_is_d_k_and_one_after_scaling(
    d_k: int, rng: np.random.Generator
) -> None:
    q, k = rng.standard_normal((2, 20_000, d_k))
    products = np.sum(q * k, axis=1)
    # A measured variance has the variance (kurtosis - 1) / n, with kurtosis 3 + 6 / d_k. Five standard deviations.
    tolerance = 5 * math.sqrt((2 + 6 / d_k) / len(products))
    assert products.var() == pytest.approx(d_k, rel=tolerance)
    assert (products / math.sqrt(d_k)).var() == pytest.approx(1.0, rel=tolerance)


def saturation(scale: float, rng: np.random.Generator, d_k: int = 512, T: int = 10) -> tuple[float, float]:
    """The mean of the largest weight, and the mean size of dscores for a random dweights."""
    q, k = rng.standard_normal((2, 200, T, d_k))
    weights, cache = na.softmax(scale * q @ k.swapaxes(-1, -2))
    dscores = na.softmax_backward(rng.standard_normal(weights.shape), cache)
    return float(weights.max(axis=-1).mean()), float(np.abs(dscores).mean())


def test_the_gradient_falls_as_the_width_grows_only_without_the_scale(rng: np.random.Generator) -> None:
    widths = (4, 64, 1024)
    plain = [saturation(1.0, rng, d_k)[1] for d_k in widths]
    scaled = [saturation(1 / math.sqrt(d_k), rng, d_k)[1] for d_k in widths]
    assert plain[0] > 2 * plain[1] > 4 * plain[2]
    assert max(scaled) < 1.2 * min(scaled)


class TestPadding:
    LENGTHS = (2, 5, 3)
