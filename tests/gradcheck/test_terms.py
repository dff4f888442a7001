"""The diagnosis names a wrong number, factor or term, and right numbers in wrong places."""

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from tests.gradcheck.planted import caught, diagnosis_of


@pytest.mark.parametrize(("wrong", "how"), [(1.0, "left out"), (3.0, "applied once too often")])
def test_a_factor_of_another_argument_that_is_broadcast(wrong: float, how: str, rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return dy * t**wrong * np.cos(x), 2 * t * (dy * np.sin(x)).sum(0)

    text = diagnosis_of(lambda x, t: t**2 * np.sin(x), vjp, rng.standard_normal((3, 4)), np.arange(2.0, 6.0))
    assert text == f"dx: the factor t is {how}"


@pytest.mark.parametrize(("wrong", "how"), [(0.0, "left out"), (2.0, "applied once too often")])
def test_an_exponential_as_a_factor(wrong: float, how: str, rng: np.random.Generator) -> None:
    text = diagnosis_of(np.expm1, lambda dy, x: dy * np.exp(wrong * x), rng.standard_normal((3, 4)))
    assert text == f"dx: the factor exp(x) is {how}"


def test_a_factor_that_is_one_of_several_outputs(rng: np.random.Generator) -> None:
    def vjp(dy: tuple[np.ndarray, np.ndarray], x: np.ndarray) -> np.ndarray:
        return np.asarray((dy[0] * np.cos(x) - dy[1] * np.sin(x)) * np.cos(x))

    text = diagnosis_of(lambda x: (np.sin(x), np.cos(x)), vjp, rng.standard_normal((3, 4)))
    assert text == "dx: the factor y[1] is applied once too often"


def test_factors_that_match_no_term_are_not_explained(rng: np.random.Generator) -> None:
    factors = np.exp(rng.standard_normal((3, 4)))
    text = diagnosis_of(np.tanh, lambda dy, x: dy * factors * (1 - np.tanh(x) ** 2), rng.standard_normal((3, 4)))
    assert "no simple rule found" in text


@pytest.mark.parametrize(("factor", "text"), [
    (-1.0, "the sign is wrong"), (2.0, "twice what it should be"), (0.5, "half of what it should be"),
    (1 / 3, "divided by 3 (axis 0 of x) once too often"), (1 / 7, "1/7 of what it should be"),
    (1 + 1e-3, "right up to a factor of 1 +1.0e-03: a rounded constant"), (0.777, "the constant factor 0.777"),
])
def test_a_known_factor(rng: np.random.Generator, factor: float, text: str) -> None:
    assert text in diagnosis_of(np.sin, lambda dy, x: factor * dy * np.cos(x), rng.standard_normal((3, 5)))


@pytest.mark.parametrize(("factor", "text"), [
    (0.3, "rate is applied once too often"), (1 / 0.3, "rate is left out"),
    (0.7, "the factor 1/(1 - rate) is left out"), (1 / 0.7, "the factor 1/(1 - rate) is applied once too often"),
])
def test_an_option_that_is_the_factor(factor: float, text: str, rng: np.random.Generator) -> None:
    message, _ = caught(
        lambda x, rate: (np.sin(x) / rate, (x, rate)), lambda dy, cache: factor * dy * np.cos(cache[0]) / cache[1],
        {"x": rng.standard_normal((3, 5))}, rate=0.3,
    )
    assert f"likely mistake: dx: {text}" in message


def test_an_inverted_scale_is_recognized(rng: np.random.Generator) -> None:
    scale = 1 / np.sqrt(7)
    text = diagnosis_of(lambda x: scale * np.sin(x), lambda dy, x: dy * np.cos(x) / scale, rng.standard_normal((5, 7)))
    assert "is the 1/n of a mean missing, or is a scale sqrt(n) instead of 1/sqrt(n)?" in text


def test_a_division_by_the_number_of_outputs_is_recognized(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return dy, dy.mean((0, 2))

    inputs = rng.standard_normal((3, 5, 7)), rng.standard_normal(5)
    text = diagnosis_of(lambda x, b: x + b[:, None], vjp, *inputs)
    assert "db: divided by 21 (axes (0, 2) of the output) once too often" in text


def test_a_constant_of_ten_digits(rng: np.random.Generator) -> None:
    text = diagnosis_of(np.sin, lambda dy, x: dy * np.cos(x) * (1 + 2e-11), rng.standard_normal((3, 4)))
    assert text == "dx: right to 2.0e-11, but wrong by the same factor everywhere: a constant with too few digits?"


def test_a_tiny_error_without_a_rule_is_called_noise(rng: np.random.Generator) -> None:
    noise = 1e-11 * rng.standard_normal((3, 4))
    text = diagnosis_of(np.sin, lambda dy, x: dy * (np.cos(x) + noise), rng.standard_normal((3, 4)))
    assert "the error follows no rule: is it noise" in text
    assert "rtol=" in text
    assert "rounded constant" not in text


def test_one_wrong_value_instead_of_zero_is_not_a_factor(rng: np.random.Generator) -> None:
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


def test_a_padding_cut_at_the_wrong_side(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.pad(dy * 3, ((0, 0), (1, 1)))[:, :-2]

    text = diagnosis_of(lambda x: 3 * x, vjp, rng.standard_normal((4, 5)))
    assert "shifted by one along axis 1: an index off by one, or a padding cut at the wrong side?" in text


def test_a_permutation_instead_of_its_inverse(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 7))

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.take_along_axis(dy, np.argsort(x, axis=1), 1))

    text = diagnosis_of(lambda x: np.sort(x, axis=1), vjp, x)
    assert "the right numbers are in the wrong places: a permutation instead of its inverse" in text


@pytest.mark.parametrize("factors", [np.full(5, 3.0), np.array([1.0, -1.0, 1.0, -1.0, 1.0])])
def test_rows_similar_to_a_softmax_are_not_called_a_softmax(factors: np.ndarray, rng: np.random.Generator) -> None:
    """Rows that sum to three; rows that sum to one but contain negative numbers."""
    total = 1.0 if factors.min() > 0 else factors

    def shares(x: np.ndarray) -> np.ndarray:
        return np.asarray(factors * np.exp(x) / (total * np.exp(x)).sum(1, keepdims=True))

    text = diagnosis_of(shares, lambda dy, x: dy * shares(x), rng.standard_normal((3, 5)))
    assert "off by a multiple of the output: is the path through a sum along that axis missing?" in text


def test_a_softmax_is_blamed_only_where_rows_sum_to_one(rng: np.random.Generator) -> None:
    def unit(x: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.sqrt((x * x).sum(1, keepdims=True)))

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy / np.sqrt((x * x).sum(1, keepdims=True)))

    text = diagnosis_of(unit, vjp, rng.standard_normal((3, 5)))
    assert "is the path through the length (or the mean square) missing" in text
    assert "softmax" not in text
