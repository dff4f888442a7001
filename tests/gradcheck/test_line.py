"""L along a line: moves what it should, puts everything back, and knows the round-off in it."""

import numpy as np
import pytest

from numpy_attention.gradcheck.line import EPS, Scalar, largest, rms


def squares(x: np.ndarray) -> Scalar:
    """L = x . x, with a dy of ones."""
    return Scalar(lambda: (x * x,), (x * x,), (np.ones(x.shape),))


def test_the_change_is_that_of_the_weighted_sum_of_the_outputs() -> None:
    x, dy = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, -1.0], [0.5, 2.0]])
    line = Scalar(lambda: (x * x,), (x * x,), (dy,)).line(x, slice(1, 3), np.array([1.0, 10.0]))
    moved = x + 0.1 * np.array([[0.0, 1.0], [10.0, 0.0]])
    assert line(0.1) == pytest.approx(float((dy * (moved**2 - x**2)).sum()))
    assert line.calls == 1


def test_the_array_is_put_back_and_a_strided_one_refused() -> None:
    x = np.array([1.0, 2.0])
    line = squares(x).line(x, slice(0, 2), np.ones(2))
    line(0.5)
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="C-contiguous"):
        squares(x).line(np.ones((4, 4))[::2, ::2], slice(0, 1), np.ones(1))


def test_where_the_function_stops_it_is_nan_and_the_array_is_put_back() -> None:
    x = np.array([1.0, 2.0])

    def stops() -> tuple[np.ndarray, ...]:
        raise ZeroDivisionError

    line = Scalar(stops, (x * x,), (np.ones(2),)).line(x, slice(0, 2), np.ones(2))
    assert np.isnan(line(0.5))
    assert x.tolist() == [1.0, 2.0]


def test_several_outputs_count_and_those_that_stay_still_bring_no_change() -> None:
    x = np.array([0.5])
    still = np.array([1e9])
    scalar = Scalar(lambda: (x * 2, still.copy()), (x * 2, still), (np.array([3.0]), np.array([7.0])))
    assert scalar.line(x, slice(0, 1), np.ones(1))(0.25) == 1.5
    assert scalar.terms == 7e9
    assert scalar.noise == pytest.approx(EPS * 7e9)


def test_a_line_runs_through_several_arrays_at_once() -> None:
    x, w = np.array([1.0, 2.0]), np.array([[3.0]])
    scalar = Scalar(lambda: (x * w[0],), (x * w[0],), (np.ones(2),))
    line = scalar.through([x, w], [np.array([1.0, -1.0]), np.array([[2.0]])])
    assert line(0.5) == pytest.approx(1.5 * 4.0 + 1.5 * 4.0 - 9.0)
    assert (x.tolist(), w.tolist()) == ([1.0, 2.0], [[3.0]])


def test_outputs_in_float32_bring_their_own_last_bits() -> None:
    x = np.array([0.5])
    y = (x * 2).astype(np.float32)
    assert Scalar(lambda: (y,), (y,), (np.ones(1),)).eps == float(np.finfo(np.float32).eps)


@pytest.mark.parametrize(("at", "height", "last_bit"), [(0.5, 0.25, 3.0), (50.0, 0.25, 150.0), (0.5, 800.0, 2400.0)])
def test_the_last_bit_is_that_of_the_largest_of_a_one_the_inputs_and_the_outputs(
    at: float, height: float, last_bit: float
) -> None:
    x, y = np.array([at]), (np.array([height]),)
    assert Scalar(lambda: y, y, (np.array([-3.0]),)).line(x, slice(0, 1), np.ones(1)).last_bit == EPS * last_bit


def test_sizes_of_nothing_are_zero() -> None:
    assert (largest(np.zeros((0, 3))), rms(np.zeros(0))) == (0.0, 0.0)
    assert (largest(np.array([-3.0, 2.0])), rms(np.array([-3.0, 4.0]))) == (3.0, 12.5**0.5)
