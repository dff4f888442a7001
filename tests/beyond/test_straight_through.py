"""Chapter 56: the levels, and a checker that says WRONG and why."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck import GradientError, gradcheck


def scale_of(x: np.ndarray, bits: int) -> float:
    return float(1.5 * np.abs(x).mean() if bits == 2 else np.abs(x).max() / (2 ** (bits - 1) - 1))


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_there_are_two_to_the_bits_less_one_levels(bits: int, rng: np.random.Generator) -> None:
    x = rng.uniform(-1.0, 1.0, 20_000)
    y, _ = na.fake_quantize(x, scale_of(x, bits), bits)
    assert len(np.unique(y)) == 2**bits - 1
    if bits > 2:
        assert np.abs(y - x).max() <= scale_of(x, bits) / 2 + 1e-12


@pytest.mark.parametrize("bits", [2, 8])
def test_the_checker_says_wrong_and_that_the_derivative_is_zero(bits: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 3))
    scale = scale_of(x, bits)
    with pytest.raises(GradientError, match=r"the function is constant here.*straight-through") as failure:
        gradcheck(na.fake_quantize, na.fake_quantize_backward, {"x": x}, scale=scale, bits=bits)
    assert "dx wrong" in str(failure.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_number_is_inside_its_own_scale(dtype: type, rng: np.random.Generator) -> None:
    for bits in (3, 4, 8):
        x = rng.standard_normal((500, 7)).astype(dtype)
        assert all(na.fake_quantize(row, scale_of(row, bits), bits)[1].all() for row in x)


def test_zeros_and_wrong_options() -> None:
    np.testing.assert_array_equal(na.fake_quantize(np.zeros(3), 1.0, 2)[0], 0.0)
    for options in ({"scale": 1e-50, "bits": 2}, {"scale": 1.0, "bits": 1}):
        with pytest.raises(ValueError, match="must be"):
            na.fake_quantize(np.zeros(3), **options)
