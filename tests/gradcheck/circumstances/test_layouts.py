"""Arrays in other layouts hold the same numbers: whoever gets others from them is told, by the name of the array."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.circumstances.answers import Asked
from numpy_attention.gradcheck.circumstances.layouts import (
    broadcast,
    check_layouts,
    fortran,
    read_only,
    spaced,
    strided,
)
from numpy_attention.gradcheck.numbers.claims import ask_backward
from numpy_attention.gradcheck.problems.problem import problem_of_function


def in_layouts(f: Any, vjp: Any, *arrays: np.ndarray) -> None:
    problem = problem_of_function(f, vjp, arrays, {})
    dy, grads = ask_backward(problem, 0)
    check_layouts(Asked(problem, problem.run(problem.inputs)[0], dy, grads, 0, 0.0, 0.0))


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((3, 4))


def test_layouts_hold_the_same_numbers(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    for layout in (read_only, fortran, spaced, strided):
        y = layout(x)
        assert np.array_equal(x, y)
        assert y.dtype == x.dtype
        assert not np.shares_memory(x, y)
        for odd in (np.zeros((0, 3)), np.array(2.0)):
            assert np.array_equal(layout(odd), odd)
            assert isinstance(layout(odd), np.ndarray)
    assert not read_only(x).flags.writeable
    assert fortran(x).flags.f_contiguous
    assert not spaced(x).flags.forc
    assert all(stride > 0 for stride in spaced(x).strides)
    assert all(stride < 0 for stride in strided(x).strides)
    assert broadcast(x).strides == (0, 0, 0)


def test_a_write_into_dy_that_changes_nothing_is_told(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dy[np.isnan(dy)] = 0
        return dy * np.cos(x)

    said = "where dy is read-only, the backward raises ValueError: .*read-only; it writes into an array that it was gi"
    with pytest.raises(GradientError, match=f"gradcheck sin: {said}"):
        in_layouts(np.sin, vjp, x)


def test_a_write_into_an_input_that_changes_nothing_is_told(x: np.ndarray) -> None:
    def doubled(x: np.ndarray) -> np.ndarray:
        x += 0
        return 2 * x

    with pytest.raises(GradientError, match="gradcheck doubled: where x is read-only, the forward raises ValueError"):
        in_layouts(doubled, lambda dy, x: 2 * dy, x)


def test_what_is_written_into_a_copy_is_lost_and_told(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.empty_like(dy)
        dx[...] = 0
        dx.reshape(-1)[:] = dy.reshape(-1)
        return dx * np.cos(x)

    with pytest.raises(GradientError, match=r"where dy is in Fortran order, dx holds other numbers; np\.empty_like"):
        in_layouts(np.sin, vjp, x)


def test_elements_taken_as_they_lie_are_told_with_their_argument(x: np.ndarray, rng: np.random.Generator) -> None:
    y = rng.standard_normal(12)

    def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x.flatten("A") @ y

    def vjp(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
        return dy * y.reshape(x.shape), dy * x.flatten("A")

    with pytest.raises(GradientError, match="where x is in Fortran order, the forward gives other numbers"):
        in_layouts(dot, vjp, x, y)

    def dot_in_order(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x.reshape(-1) @ y

    with pytest.raises(GradientError, match="gradcheck dot_in_order: where x is in Fortran order, dy holds other"):
        in_layouts(dot_in_order, vjp, x, y)


def test_strides_counted_by_hand_are_told(x: np.ndarray) -> None:
    def pairs(x: np.ndarray) -> np.ndarray:
        return x[:, 1:] + x[:, :-1]

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.zeros(x.shape)
        windows = np.lib.stride_tricks.as_strided(dy, dy.shape, (dy.itemsize * dy.shape[1], dy.itemsize))
        dx[:, 1:] += windows
        dx[:, :-1] += windows
        return dx

    with pytest.raises(GradientError, match=r"gradcheck pairs: where dy (is|has) .*, dx holds other numbers"):
        in_layouts(pairs, vjp, x)


def test_strides_of_zero_are_told(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        scale = 0.0 if 0 in dy.strides else 1.0
        return scale * dy * np.cos(x)

    with pytest.raises(GradientError, match=r"dy is made by np\.broadcast_to, as behind a sum, dx holds other"):
        in_layouts(np.sin, vjp, x)

    def refuses(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        if 0 in dy.strides:
            raise ValueError("strides")
        return dy * np.cos(x)

    with pytest.raises(GradientError, match=r"np\.broadcast_to, as behind a sum, the backward raises ValueError"):
        in_layouts(np.sin, refuses, x)


def test_a_forward_may_refuse_a_layout_and_its_backward_is_asked_still(x: np.ndarray) -> None:
    def strict(x: np.ndarray) -> np.ndarray:
        if not x.flags.c_contiguous:
            raise ValueError("x must be contiguous")
        return np.sin(x)

    in_layouts(strict, lambda dy, x: dy * np.cos(x), x)
    with pytest.raises(GradientError, match="where dy is in Fortran order, the backward raises ValueError: x must be"):
        in_layouts(strict, lambda dy, x: dy * np.cos(x) + 0 * strict(dy), x)


def test_negative_strides_may_be_refused_but_not_mistaken(x: np.ndarray) -> None:
    def refuses(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        if any(stride < 0 for stride in (*dy.strides, *x.strides)):
            raise ValueError("negative strides are not supported")
        return dy * np.cos(x)

    in_layouts(np.sin, refuses, x)

    def mistakes(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return (dy[::-1] if dy.strides[0] < 0 else dy) * np.cos(x)

    with pytest.raises(GradientError, match="where dy has negative strides, dx holds other numbers"):
        in_layouts(np.sin, mistakes, x)
