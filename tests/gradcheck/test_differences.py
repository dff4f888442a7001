"""Differences estimate their own error; at a corner any slope in between is right; along a tie one exists."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.differences import (
    along,
    first_step,
    is_kink,
    measure_stairs,
    quick,
    refined,
    taylor_slope,
)
from numpy_attention.gradcheck.line import Line, Scalar

SMOOTH = [
    (np.exp, np.exp, 0.3), (np.sin, np.cos, 2.0), (np.log, lambda x: 1 / x, 0.02),
    (np.tanh, lambda x: np.cosh(x) ** -2, 5.0),
    (lambda x: np.sin(50 * x), lambda x: 50 * np.cos(50 * x), 0.4), (lambda x: x**9, lambda x: 9 * x**8, 1.5),
    (lambda x: x / np.sqrt(x * x + 1e-5), lambda x: 1e-5 * (x * x + 1e-5) ** -1.5, 0.7),
    (lambda x: 1e6 + x * x, lambda x: 2 * x, 0.5),
]


def line_of(f: Callable[[np.ndarray], np.ndarray], at: float) -> Line:
    x, dy = np.array([at]), (np.ones(1),)
    y = (f(x),)
    return Scalar(lambda: (np.array(f(x)),), y, dy).line(x, slice(0, 1), np.ones(1))


@pytest.mark.parametrize(("f", "slope", "at"), SMOOTH)
@pytest.mark.parametrize("method", [quick, refined])
def test_the_true_slope_lies_within_the_error_bar(f: Callable, slope: Callable, at: float, method: Callable) -> None:
    found = method(line_of(f, at), 2.0**-9)
    assert abs(found.value - slope(np.float64(at))) <= 8 * found.error + 1e-12 * abs(found.value)


@pytest.mark.parametrize(("f", "slope", "at"), SMOOTH)
def test_the_error_bar_is_small_enough_to_see_one_percent(f: Callable, slope: Callable, at: float) -> None:
    found = refined(line_of(f, at), 2.0**-9)
    assert 8 * found.error < 0.01 * abs(slope(np.float64(at)))


def test_only_corners_are_kinks() -> None:
    for f, at, kink in [
        (np.abs, 0.0, True), (np.abs, 0.3, False), (np.abs, 1e-5, False), (np.exp, 0.0, False),
        (lambda x: np.maximum(x, 0), 0.0, True), (lambda x: x * np.abs(x), 0.0, False)
    ]:
        line = line_of(f, at)
        assert is_kink(line, refined(line, 2.0**-9), 2.0**-9) is kink


@pytest.mark.parametrize("at", [0.3, 2.0])
def test_the_taylor_remainder_falls_with_slope_two_if_the_gradient_is_right(at: float) -> None:
    right, wrong = (taylor_slope(line_of(np.exp, at), factor * math.exp(at)) for factor in (1.0, 1.01))
    assert right is not None
    assert wrong is not None
    assert right == pytest.approx(2, abs=0.05)
    assert wrong == pytest.approx(1, abs=0.05)


def test_a_remainder_that_is_soon_lost_in_round_off_tells_no_slope() -> None:
    def line_with(bend: float) -> Line:
        """1 + x, and a bend: so much at the first step, an eighth, and a quarter of it at each further one."""
        return line_of(lambda x: 1.0 + x + bend * (8 * x) ** 2, 0.0)

    noise = line_with(1.0).noise
    assert taylor_slope(line_with(1e4 * noise), 1.0) == pytest.approx(2, abs=0.1)
    assert taylor_slope(line_with(2e3 * noise), 1.0) is None, "two steps only"


@pytest.mark.parametrize("height", [2.0**-16, 2.0**-20, 2.0**-23])
def test_the_height_of_stairs_is_learned_as_round_off(height: float) -> None:
    line = line_of(lambda x: height * np.round(x / height), 0.0)
    measure_stairs(line)
    assert 0.1 * height < line.noise < height


def test_what_is_no_stair_keeps_its_round_off() -> None:
    for f in (np.sin, np.ones_like):
        line = line_of(f, 0.3)
        before = line.noise
        measure_stairs(line)
        assert line.noise == before


def test_an_error_at_an_infinite_value_is_infinite() -> None:
    with np.errstate(all="ignore"):
        assert math.isinf(quick(line_of(np.log, 1e-5), 2.0**-9).error)


def test_a_first_step_is_small_beside_the_value_and_never_lost_in_it() -> None:
    for value, usual in [(1e-12, 1e-12), (1e-12, 1.0), (1.0, 1.0), (1e6, 1.0), (0.0, 0.0), (-30.0, 2.0)]:
        step = first_step(value, usual)
        assert value + step != value
        assert step <= 2.0**-9 * max(abs(value), usual) or (value, usual) == (0.0, 0.0)


def test_a_derivative_along_a_direction_is_the_sum_over_the_elements(rng: np.random.Generator) -> None:
    x, v = rng.standard_normal((2, 3, 4))
    scalar = Scalar(lambda: (x**3,), (x**3,), (np.full(x.shape, 2.0),))
    found = along(scalar, x, v, levels=8)
    assert found.value == pytest.approx(float((6 * x**2 * v).sum()), rel=1e-9)


def largest(x: np.ndarray) -> np.ndarray:
    return x.max(-1, keepdims=True)


def one_of_them(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * (np.arange(x.shape[-1]) == x.argmax(-1)[..., None])


def shared(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    tied = x == largest(x)
    return dy * tied / tied.sum(-1, keepdims=True)


def to_each(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * (x == largest(x))


@pytest.mark.parametrize("row", [[0.0, 2.0, 2.0], [0.0, 0.0, 0.0, -1.0], [-3e5, -3e5, -4e5], [1e-6, 1e-6, 0.0]])
def test_at_a_tie_one_gets_dy_or_all_share_it_but_not_each(row: list[float]) -> None:
    x = np.array([row, np.linspace(-1, 1, len(row))])
    for right in (one_of_them, shared):
        assert gradcheck_vjp(largest, right, (x,)).kinks == sum(value == max(row) for value in row)
    with pytest.raises(GradientError, match="moved together have a derivative") as failure:
        gradcheck_vjp(largest, to_each, (x,))
    assert "give dy to one of them, or share it" in str(failure.value)


def test_at_a_tie_of_zeros_somebody_must_get_dy() -> None:
    x = np.zeros((1, 3))  # the maximum is zero too, and with it all terms
    for right in (one_of_them, shared):
        assert gradcheck_vjp(largest, right, (x,)).kinks == 3
    with pytest.raises(GradientError, match="gradients add up to 0"):
        gradcheck_vjp(largest, lambda dy, x: 0 * x, (x,))


def test_a_tie_between_two_arguments() -> None:
    x, y = np.array([0.5, 1.0, 2.0]), np.array([0.5, 3.0, 1.0])

    def both(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
        return dy * (x >= y), dy * (y >= x)

    gradcheck_vjp(np.maximum, lambda dy, x, y: (dy * (x >= y), dy * (y > x)), (x, y))
    with pytest.raises(GradientError, match="moved together have a derivative"):
        gradcheck_vjp(np.maximum, both, (x, y))


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_three_equal_numbers_in_a_sort(k: int) -> None:
    x = np.array([1.0, 0.3, 1.0, -2.0, 1.0])

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        dx[np.argsort(x, kind="stable")] = dy
        return dx

    gradcheck_vjp(np.sort, vjp, (np.roll(x, k),))
    with pytest.raises(GradientError):
        gradcheck_vjp(np.sort, lambda dy, x: 3 * vjp(dy, x), (np.roll(x, k),))


def test_the_median_of_three_equal_numbers() -> None:
    x = np.array([0.0, -1.0, 0.0, 2.0, 0.0])

    def median(x: np.ndarray) -> np.ndarray:
        return np.sort(x)[2:3]

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * (np.arange(5) == np.argsort(x, kind="stable")[2])

    assert gradcheck_vjp(median, vjp, (x,)).ok
    with pytest.raises(GradientError):
        gradcheck_vjp(median, lambda dy, x: dy * (np.arange(5) == 3), (x,))


def test_two_relus_in_a_chain_at_their_corner() -> None:
    x = np.array([0.0, 1.5, -2.0])

    def f(x: np.ndarray) -> np.ndarray:
        return np.maximum(2 * np.maximum(x, 0), 0)

    for at_zero in (0.0, 0.5, 1.0):
        slope = at_zero * at_zero
        report = gradcheck_vjp(f, lambda dy, x, s=slope: 2 * dy * np.where(x == 0, s, x > 0), (x,))
        assert report.kinks == 1
    with pytest.raises(GradientError):
        gradcheck_vjp(f, lambda dy, x: 2 * dy * np.where(x == 0, -0.5, x > 0), (x,))


def test_a_point_where_the_function_is_smooth_is_no_corner() -> None:
    """relu(x) - relu(-x) is x: what conventions make of its two corners is wrong."""
    with pytest.raises(GradientError):
        gradcheck_vjp(
            lambda x: np.maximum(x, 0) - np.maximum(-x, 0), lambda dy, x: dy * (x != 0), (np.array([0.0, 1.0, -1.0]),)
        )
