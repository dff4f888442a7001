"""L along a line: moves the right elements, and restores them; differences along a line estimate their error."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from numpy_attention.gradcheck.line import (
    EPS,
    Line,
    Scalar,
    first_step,
    is_kink,
    largest,
    measure_stairs,
    quick,
    refined,
    rms,
    taylor_slope,
)


def squares(x: np.ndarray) -> Scalar:
    """L = x . x, with a dy of ones."""
    return Scalar(lambda: (x * x,), (x * x,), (np.ones(x.shape),))


def test_a_line_returns_the_change_of_the_weighted_sum() -> None:
    x, dy = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, -1.0], [0.5, 2.0]])
    line = Scalar(lambda: (x * x,), (x * x,), (dy,)).line(x, slice(1, 3), np.array([1.0, 10.0]))
    moved = x + 0.1 * np.array([[0.0, 1.0], [10.0, 0.0]])
    assert line(0.1) == pytest.approx(float((dy * (moved**2 - x**2)).sum()))
    assert line.calls == 1


def test_a_line_restores_the_array_and_refuses_strides() -> None:
    x = np.array([1.0, 2.0])
    line = squares(x).line(x, slice(0, 2), np.ones(2))
    line(0.5)
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="C-contiguous"):
        squares(x).line(np.ones((4, 4))[::2, ::2], slice(0, 1), np.ones(1))


def test_a_line_is_nan_outside_the_domain() -> None:
    x = np.array([1.0, 2.0])

    def stops() -> tuple[np.ndarray, ...]:
        raise ZeroDivisionError

    line = Scalar(stops, (x * x,), (np.ones(2),)).line(x, slice(0, 2), np.ones(2))
    assert np.isnan(line(0.5))
    assert x.tolist() == [1.0, 2.0]


def test_several_outputs_are_summed() -> None:
    x = np.array([0.5])
    still = np.array([1e9])
    scalar = Scalar(lambda: (x * 2, still.copy()), (x * 2, still), (np.array([3.0]), np.array([7.0])))
    assert scalar.line(x, slice(0, 1), np.ones(1))(0.25) == 1.5
    assert scalar.terms == 7e9
    assert scalar.noise == pytest.approx(EPS * 7e9)


def test_a_line_moves_several_arrays_at_once() -> None:
    x, w = np.array([1.0, 2.0]), np.array([[3.0]])
    scalar = Scalar(lambda: (x * w[0],), (x * w[0],), (np.ones(2),))
    line = scalar.through([x, w], [np.array([1.0, -1.0]), np.array([[2.0]])])
    assert line(0.5) == pytest.approx(1.5 * 4.0 + 1.5 * 4.0 - 9.0)
    assert (x.tolist(), w.tolist()) == ([1.0, 2.0], [[3.0]])


def test_outputs_in_float32_have_the_round_off_of_float32() -> None:
    x = np.array([0.5])
    y = (x * 2).astype(np.float32)
    assert Scalar(lambda: (y,), (y,), (np.ones(1),)).eps == float(np.finfo(np.float32).eps)


@pytest.mark.parametrize(("at", "height", "last_bit"), [(0.5, 0.25, 3.0), (50.0, 0.25, 150.0), (0.5, 800.0, 2400.0)])
def test_the_last_bit_is_that_of_the_largest_number(
    at: float, height: float, last_bit: float
) -> None:
    x, y = np.array([at]), (np.array([height]),)
    assert Scalar(lambda: y, y, (np.array([-3.0]),)).line(x, slice(0, 1), np.ones(1)).last_bit == EPS * last_bit


def test_sizes_of_empty_arrays_are_zero() -> None:
    assert (largest(np.zeros((0, 3))), rms(np.zeros(0))) == (0.0, 0.0)
    assert (largest(np.array([-3.0, 2.0])), rms(np.array([-3.0, 4.0]))) == (3.0, 12.5**0.5)


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
def test_the_true_slope_is_within_the_error(f: Callable, slope: Callable, at: float, method: Callable) -> None:
    found = method(line_of(f, at), 2.0**-9)
    assert abs(found.value - slope(np.float64(at))) <= 8 * found.error + 1e-12 * abs(found.value)


@pytest.mark.parametrize(("f", "slope", "at"), SMOOTH)
def test_the_estimated_error_is_below_one_percent(f: Callable, slope: Callable, at: float) -> None:
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


def test_a_remainder_below_round_off_gives_no_slope() -> None:
    def line_with(bend: float) -> Line:
        """1 + x plus a bend: `bend` at the first step, 1/8, and a quarter of it at each next step."""
        return line_of(lambda x: 1.0 + x + bend * (8 * x) ** 2, 0.0)

    noise = line_with(1.0).scalar.noise
    assert taylor_slope(line_with(1e4 * noise), 1.0) == pytest.approx(2, abs=0.1)
    assert taylor_slope(line_with(2e3 * noise), 1.0) is None, "two steps only"


@pytest.mark.parametrize("height", [2.0**-16, 2.0**-20, 2.0**-23])
def test_the_height_of_a_staircase_is_measured_as_round_off(height: float) -> None:
    line = line_of(lambda x: height * np.round(x / height), 0.0)
    measure_stairs(line)
    assert 0.1 * height < line.scalar.noise < height


def test_without_a_staircase_the_round_off_does_not_change() -> None:
    for f in (np.sin, np.ones_like):
        line = line_of(f, 0.3)
        before = line.scalar.noise
        measure_stairs(line)
        assert line.scalar.noise == before


def test_an_error_at_an_infinite_value_is_infinite() -> None:
    with np.errstate(all="ignore"):
        assert math.isinf(quick(line_of(np.log, 1e-5), 2.0**-9).error)


def test_a_first_step_is_small_but_above_round_off() -> None:
    for value, usual in [(1e-12, 1e-12), (1e-12, 1.0), (1.0, 1.0), (1e6, 1.0), (0.0, 0.0), (-30.0, 2.0)]:
        step = first_step(value, usual)
        assert value + step != value
        assert step <= 2.0**-9 * max(abs(value), usual) or (value, usual) == (0.0, 0.0)


def test_a_derivative_along_a_direction_is_the_sum_over_the_elements(rng: np.random.Generator) -> None:
    x, v = rng.standard_normal((2, 3, 4))
    scalar = Scalar(lambda: (x**3,), (x**3,), (np.full(x.shape, 2.0),))
    found = refined(scalar.line(x, slice(None), v.reshape(-1)), 2.0**-9, levels=8)
    assert found.value == pytest.approx(float((6 * x**2 * v).sum()), rel=1e-9)
