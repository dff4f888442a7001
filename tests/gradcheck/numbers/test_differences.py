"""Differences know how far to trust themselves."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from numpy_attention.gradcheck.numbers.differences import (
    along,
    first_step,
    is_kink,
    measure_stairs,
    quick,
    refined,
    taylor_slope,
)
from numpy_attention.gradcheck.numbers.line import Line, Scalar

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
