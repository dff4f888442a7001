"""What a wrong gradient has more, or less, than the right one is named; so is where its numbers belong."""

import numpy as np
import pytest

from tests.gradcheck.words.test_branches import told


def test_a_term_of_the_product_rule_that_is_left_out(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    words = told(lambda x: x * np.sin(x), lambda dy, x: dy * (x * np.cos(x) + np.sin(x) - x), x)
    assert words == "dx: is short by dy * x: a term of the sum that is left out"


def test_a_term_with_the_wrong_sign(rng: np.random.Generator) -> None:
    words = told(lambda x: x * x + np.cos(x), lambda dy, x: dy * (-2 * x - np.sin(x)), rng.standard_normal((3, 4)))
    assert words == "dx: is short by 4 dy * x: a term with the wrong sign?"


def test_a_one_that_is_forgotten_in_a_row(rng: np.random.Generator) -> None:
    def f(p: np.ndarray) -> np.ndarray:
        return np.asarray((p * np.log(p)).sum(1))

    words = told(f, lambda dy, p: dy[:, None] * np.log(p), rng.uniform(0.1, 1, (3, 5)))
    assert "dp: is short by dy: a term of the sum that is left out" in words


def test_a_padding_cut_at_the_wrong_side(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dp = np.pad(dy * 3, 1)
        return dp[:-2, :-2]

    words = told(lambda x: 3 * x, vjp, rng.standard_normal((4, 5)))
    assert "shifted by one along axes 0, 1: an offset by one, a padding cut at the wrong side?" in words


def test_an_order_where_its_inverse_belongs(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 7))

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.take_along_axis(dy, np.argsort(x, axis=1), 1))

    words = told(lambda x: np.sort(x, axis=1), vjp, x)
    assert "the right numbers stand in the wrong places along axis 1: an order where its inverse belongs" in words


@pytest.mark.parametrize("factors", [np.full(5, 3.0), np.array([1.0, -1.0, 1.0, -1.0, 1.0])])
def test_what_is_but_like_a_softmax_is_not_called_one(factors: np.ndarray, rng: np.random.Generator) -> None:
    """Rows that sum to three; rows that sum to one, with negative numbers among them."""
    total = 1.0 if factors.min() > 0 else factors

    def shares(x: np.ndarray) -> np.ndarray:
        return np.asarray(factors * np.exp(x) / (total * np.exp(x)).sum(1, keepdims=True))

    words = told(shares, lambda dy, x: dy * shares(x), rng.standard_normal((3, 5)))
    assert "off by a multiple of the output: is the path through a sum along that axis missing?" in words


def test_a_softmax_is_blamed_only_where_rows_sum_to_one(rng: np.random.Generator) -> None:
    def unit(x: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.sqrt((x * x).sum(1, keepdims=True)))

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy / np.sqrt((x * x).sum(1, keepdims=True)))

    words = told(unit, vjp, rng.standard_normal((3, 5)))
    assert "is the path through the length (or the mean square) missing" in words
    assert "softmax" not in words
