"""A gradient that is the right one times a number: what that number tells."""

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from tests.gradcheck.planted import caught
from tests.gradcheck.words.test_branches import told


@pytest.mark.parametrize(("factor", "words"), [
    (-1.0, "the sign is wrong"), (2.0, "twice what it should be"), (0.5, "half of what it should be"),
    (1 / 3, "divided by 3 (axis 0 of x) once too often"), (1 / 7, "1/7 of what it should be"),
    (11.0, "11 times what it should be: is a division by 11 missing?"), (np.pi, "the factor pi is one too many"),
    (4 / 5, "4 / 5 of what it should be: n for n - 1, of the 5 of axis 1 of x"),
    (5 / 4, "5 / 4 of what it should be: n - 1 for n, of the 5 of axis 1 of x"),
    (1 + 1e-3, "right up to a factor of 1 +1.0e-03: a rounded constant"), (0.777, "the constant factor 0.777"),
])
def test_a_known_factor(rng: np.random.Generator, factor: float, words: str) -> None:
    assert words in told(np.sin, lambda dy, x: factor * dy * np.cos(x), rng.standard_normal((3, 5)))


@pytest.mark.parametrize(("factor", "words"), [
    (0.3, "rate is applied once too often"), (1 / 0.3, "rate is left out"),
    (0.7, "the factor 1/(1 - rate) is left out"), (1 / 0.7, "the factor 1/(1 - rate) is applied once too often"),
])
def test_an_option_that_is_the_factor(factor: float, words: str, rng: np.random.Generator) -> None:
    message, _ = caught(
        lambda x, rate: (np.sin(x) / rate, (x, rate)), lambda dy, cache: factor * dy * np.cos(cache[0]) / cache[1],
        {"x": rng.standard_normal((3, 5))}, rate=0.3,
    )
    assert f"likely mistake: dx: {words}" in message


def test_a_scale_upside_down_is_thought_of(rng: np.random.Generator) -> None:
    scale = 1 / np.sqrt(7)
    words = told(lambda x: scale * np.sin(x), lambda dy, x: dy * np.cos(x) / scale, rng.standard_normal((5, 7)))
    assert "a mean whose 1/n was forgotten, or a scale 1/sqrt(n) upside down?" in words


def test_the_elements_of_the_output_that_a_mean_was_taken_over(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return dy, dy.mean((0, 2))

    inputs = rng.standard_normal((3, 5, 7)), rng.standard_normal(5)
    words = told(lambda x, b: x + b[:, None], vjp, *inputs)
    assert "db: divided by 21 (axes (0, 2) of the output) once too often" in words


def test_a_constant_of_ten_digits(rng: np.random.Generator) -> None:
    words = told(np.sin, lambda dy, x: dy * np.cos(x) * (1 + 2e-11), rng.standard_normal((3, 4)))
    assert words == "dx: right to 2.0e-11, and off by that factor everywhere: a constant of so few digits?"


def test_what_is_off_without_a_rule_by_very_little_is_called_noise(rng: np.random.Generator) -> None:
    noise = 1e-11 * rng.standard_normal((3, 4))
    words = told(np.sin, lambda dy, x: dy * (np.cos(x) + noise), rng.standard_normal((3, 4)))
    assert "off without a rule: noise" in words
    assert "rtol=" in words
    assert "rounded constant" not in words


def test_one_stray_value_where_zero_belongs_is_no_factor(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    x[1, 2] = -0.7

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = dy * (x > 0)
        dx[1, 2] = 1e-3 * dy[1, 2]
        return np.asarray(dx)

    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(lambda x: np.maximum(x, 0), vjp, (x,))
    assert "element [1, 2], which must be zero" in str(failure.value)
    assert "factor" not in str(failure.value)
