"""Round-off excuses what it must, and a claim that is wrong at one point only is not excused by its jump."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp

CUBE = np.array([0.0, 1.0, 2.0])


@pytest.mark.parametrize("witness", ["both", "differences"])
@pytest.mark.parametrize("point", [0.0, 1.0])
@pytest.mark.parametrize("claim", [1000.0, -0.5])
def test_a_backward_that_is_wrong_at_exactly_one_point(witness: str, point: float, claim: float) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.where(x == point, claim, 3 * x * x)

    with pytest.raises(GradientError, match=rf"dx\[{int(point)}\]"):
        gradcheck_vjp(lambda x: x**3, vjp, (CUBE,), witness=witness)


@pytest.mark.parametrize("witness", ["both", "differences"])
def test_a_backward_that_is_wrong_where_two_inputs_are_equal(witness: str) -> None:
    x, y = np.array([0.5, 1.0, 2.0]), np.array([0.5, 3.0, 1.0])

    def vjp(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
        return dy * np.where(x == y, 7.0, y), dy * x

    with pytest.raises(GradientError, match=r"dx\[0\]"):
        gradcheck_vjp(lambda x, y: x * y, vjp, (x, y), witness=witness)


def test_the_round_off_of_a_stair_is_seen_from_further_away() -> None:
    """1 - p for a p of nearly 1: a few last bits of the logits move nothing, and yet half the digits are lost."""
    for gap in (20.0, 23.5, 24.0, 26.0):
        inputs = {"logits": np.array([[gap, 0.0]]), "targets": np.array([0])}
        gradcheck(ops.cross_entropy, ops.cross_entropy_backward, inputs)
    inputs = {"logits": np.array([[24.0, 0.0]]), "targets": np.array([0])}
    with pytest.raises(GradientError):
        gradcheck(ops.cross_entropy, lambda dy, cache: 1.01 * ops.cross_entropy_backward(dy, cache), inputs)


def test_a_solve_at_condition_1e7_is_no_alarm_and_an_error_in_it_is(rng: np.random.Generator) -> None:
    scales = np.logspace(0, -7, 5)
    q, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    a, b = q * scales @ q.T + 0.0, rng.standard_normal((5, 2))

    def vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
        db = np.linalg.solve(a.T, dy)
        return -db @ np.linalg.solve(a, b).T, db

    gradcheck_vjp(np.linalg.solve, vjp, (a, b))
    with pytest.raises(GradientError, match="db"):
        gradcheck_vjp(np.linalg.solve, lambda dy, a, b: (vjp(dy, a, b)[0], 1.0001 * vjp(dy, a, b)[1]), (a, b))


def test_what_no_witness_resolves_is_not_called_right(rng: np.random.Generator) -> None:
    """A function whose digits are noise, the same noise at every call."""
    x = rng.standard_normal(4)

    def noisy(x: np.ndarray) -> np.ndarray:
        return np.sin(x) + 0.1 * np.modf(np.abs(np.real(x)) * 1e7)[0]

    for claim in (0.0, 1.0, 7.0):
        with pytest.raises(GradientError, match=r"dx (not resolved|wrong)"):
            gradcheck_vjp(noisy, lambda dy, x, claim=claim: claim * dy * np.cos(x), (x,))
