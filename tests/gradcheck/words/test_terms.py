"""A factor of the formula that is missing, or another in its place, is named."""

import re

import numpy as np
import pytest

from numpy_attention.gradcheck.words.terms import FUNCTIONS, POWERS, spread
from tests.gradcheck.words.test_branches import told


def test_another_function_of_the_output(rng: np.random.Generator) -> None:
    words = told(np.tanh, lambda dy, x: dy * (1 - np.tanh(x)), rng.standard_normal((3, 4)))
    assert "dx: it is dy times (1 - y), where dy times (1 - y**2) belongs" in words


def test_the_input_in_place_of_the_output(rng: np.random.Generator) -> None:
    words = told(lambda x: 1 / (1 + np.exp(-x)), lambda dy, x: dy * x * (1 - x), rng.standard_normal((3, 4)))
    assert "it is dy times x (1 - x), where dy times y (1 - y) belongs" in words


def test_a_factor_of_another_argument_that_is_spread_over_the_rows(rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((3, 4)), rng.uniform(0.5, 2, 3)

    def f(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.asarray(np.cumsum(np.exp(x), axis=1) / t[:, None])

    def vjp(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.flip(np.cumsum(np.flip(dy, 1), 1), 1) * np.exp(x), -(dy * f(x, t)).sum(1) / t

    words = told(f, vjp, x, t)
    assert "dx: the factor t stands there once too often, or a division by it is left out" in words


def test_a_length_that_is_divided_by_once_too_often(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))

    words = told(lambda x: np.log((x * x).sum(1)), lambda dy, x: (2 * dy / (x * x).sum(1) ** 1.5)[:, None] * x, x)
    assert "the length of x along axis 1 is left out, or it is divided by it once too often" in words


def test_nothing_is_said_of_factors_that_follow_no_term(rng: np.random.Generator) -> None:
    factors = np.exp(rng.standard_normal((3, 4)))
    words = told(np.tanh, lambda dy, x: dy * factors * (1 - np.tanh(x) ** 2), rng.standard_normal((3, 4)))
    assert "by no simple rule" in words


@pytest.mark.parametrize("words", FUNCTIONS)
def test_a_function_is_what_its_words_say(words: str, rng: np.random.Generator) -> None:
    formula = re.sub(r"\|u\|", "abs(u)", words.format(u="u"))
    formula = re.sub(r"u (?=\(|abs)", "u * ", formula)  # u (1 - u), u |u|
    known = {name: getattr(np, name) for name in ("abs", "exp", "log", "sqrt", "sin", "cos")}
    u = np.append(rng.uniform(0.1, 2, 4), rng.uniform(-2, -0.1, 4))
    with np.errstate(invalid="ignore"):  # sqrt and log of the negative ones
        expected = eval(formula, known | {"u": u, "sigmoid": lambda u: 1 / (1 + np.exp(-u))})
        np.testing.assert_allclose(FUNCTIONS[words](u), np.broadcast_to(expected, u.shape), rtol=1e-12)


@pytest.mark.parametrize("power", POWERS)
def test_a_power_is_what_its_words_say(power: float, rng: np.random.Generator) -> None:
    z = rng.uniform(0.1, 2, 4)
    np.testing.assert_allclose(z**power, eval(POWERS[power].format(z="z"), {"z": z, "sqrt": np.sqrt}), rtol=1e-14)


@pytest.mark.parametrize(("shape", "ways"), [((3,), 1), ((4,), 2), ((3, 4), 2), ((1,), 3), ((5,), 0), ((4, 4), 1)])
def test_an_array_is_spread_in_each_way_that_fits(shape: tuple[int, ...], ways: int) -> None:
    found = list(spread(np.ones(shape), (3, 4, 4)))
    assert len(found) == ways
    assert all(one.shape == (3, 4, 4) for one in found)
