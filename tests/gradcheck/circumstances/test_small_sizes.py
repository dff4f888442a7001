"""Axes of length 1: what fails there alone is told, what is bound to a length is let be."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.circumstances.small_sizes import another_length, check_small_sizes, lengths, resized
from numpy_attention.gradcheck.numbers.claims import ask_backward
from numpy_attention.gradcheck.problems.problem import problem_of_function


def with_ones(f: Any, vjp: Any, *arrays: np.ndarray, **tolerances: float) -> None:
    problem = problem_of_function(f, vjp, arrays, {})
    with np.errstate(all="ignore"):
        check_small_sizes(problem, ask_backward(problem, 0)[1], 0, **tolerances)


def test_all_axes_of_a_length_are_cut_together(rng: np.random.Generator) -> None:
    arrays = {"x": rng.standard_normal((3, 4)), "ids": np.arange(3), "w": rng.standard_normal((4, 4)), "n": 3}
    problem = problem_of_function(lambda x, ids, w, n: x @ w, lambda *_: None, tuple(arrays.values()), {})
    assert lengths(problem) == [3, 4]
    cut = resized(arrays, 4, [0])
    assert [np.shape(value) for value in cut.values()] == [(3, 1), (3,), (1, 1), ()]
    assert np.array_equal(cut["x"], arrays["x"][:, :1])
    shorter = another_length(arrays, 4)
    assert shorter is not None
    assert np.array_equal(shorter["w"], arrays["w"][:3, :3])
    longer = another_length({"x": np.ones((2, 3))}, 2)
    assert longer is not None
    assert longer["x"].shape == (3, 3)
    assert another_length({"x": np.ones((2, 2))}, 2) is None, "a longer matrix would be singular"


def test_a_squeeze_is_told(rng: np.random.Generator) -> None:
    def linear(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x @ w

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return np.squeeze(dy @ w.T), x.T @ dy

    said = r"with one element along the axis of length 3 \(x \(1, 4\)\) the forward runs, but dx has shape \(4,\)"
    with pytest.raises(GradientError, match=f"gradcheck linear: {said}.*\n.*squeezed away(.|\n)*repeat with seed=0"):
        with_ones(linear, vjp, rng.standard_normal((3, 4)), rng.standard_normal((4, 2)))


def test_a_backward_that_raises_is_told(rng: np.random.Generator) -> None:
    def total(x: np.ndarray) -> np.ndarray:
        return np.sum(x * x, 1)

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 2 * np.squeeze(dy)[:, None] * x

    with pytest.raises(GradientError, match=r"length 2 \(x \(1, 5\)\) the forward runs, but the backward raises"):
        with_ones(total, vjp, rng.standard_normal((2, 5)))


def test_wrong_numbers_are_told(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray) -> np.ndarray:
        return x - np.mean(x, 0) / 2

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        axes = tuple(axis for axis in (0, 1) if x.shape[axis] == 1) or (0,)  # to where it was broadcast from
        return dy - np.mean(dy, axes, keepdims=True) / 2

    said = r"length 4 \(x \(3, 1\)\) the forward runs, but along a direction the backward says .*, differences say"
    with pytest.raises(GradientError, match=said):
        with_ones(centred, vjp, rng.standard_normal((3, 4)))


def test_the_length_of_a_table_of_ids_is_left(rng: np.random.Generator) -> None:
    def embed(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
        return table[ids]

    def vjp(dy: np.ndarray, ids: np.ndarray, table: np.ndarray) -> np.ndarray:
        grad = np.zeros_like(table)
        np.add.at(grad, ids, dy)
        return grad

    with_ones(embed, vjp, rng.integers(0, 7, (2, 3)), rng.standard_normal((7, 5)))


TARGET = np.arange(12).reshape(3, 4) / 7


@pytest.mark.parametrize(("f", "vjp"), [
    (lambda x: x - TARGET, lambda dy, x: dy),  # one row would be broadcast, and its gradient be summed
    (lambda x: np.sum((x - TARGET) ** 2), lambda dy, x: 2 * dy * (x - TARGET)),
    (lambda x: np.mean(x, 0), lambda dy, x: np.tile(dy / 3, (3, 1))),
    (lambda x: np.mean(x, 0), lambda dy, x: np.broadcast_to(dy / 3, x.shape)),  # right for three rows
    (lambda x: np.std(x, 0), lambda dy, x: dy * (x - x.mean(0)) / (len(x) * x.std(0))),  # 0/0 for one row
], ids=["a target", "a loss", "a shape", "a divisor", "no derivative"])
def test_what_is_bound_to_a_length_is_left(f: Any, vjp: Any, rng: np.random.Generator) -> None:
    with_ones(f, vjp, rng.standard_normal((3, 4)))


def test_an_element_taken_by_its_number_binds_to_a_length(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = dy * np.cos(x)
        dx[1] = dy[1] * np.cos(x[1])
        return dx

    with_ones(np.sin, vjp, rng.standard_normal(5))


def test_a_corner_is_no_mistake() -> None:
    def gap(x: np.ndarray) -> np.ndarray:  # with one element |x - mean| is 0 everywhere; with more, dy sign
        return np.abs(x - x[::-1])

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        grad = dy * np.sign(x - x[::-1])
        return grad - grad[::-1]

    with_ones(gap, vjp, np.array([0.3, -1.0, 2.0, 0.7]))


def test_a_stated_tolerance_holds_here_too(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.cos(x) * (1.01 if len(x) == 1 else 1.0)

    x = rng.standard_normal((3, 2))
    with pytest.raises(GradientError, match="differences say"):
        with_ones(np.sin, vjp, x)
    with_ones(np.sin, vjp, x, rtol=0.02)
    with_ones(np.sin, vjp, x, atol=0.02)


def test_a_gradient_that_holds_no_floats_for_a_batch_of_one_is_named() -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 3 * dy if len(x) > 1 else np.zeros(x.shape, object)

    with pytest.raises(GradientError, match=r"with one element along the axis of length 4 .* dx holds object, x holds"):
        gradcheck_vjp(lambda x: 3 * x, vjp, (np.arange(8.0).reshape(4, 2),))
