"""Axes of length 1 must give right gradients too; a function that needs a certain length is not reported."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from numpy_attention.gradcheck.lengths import check_small_sizes
from numpy_attention.gradcheck.problem import FunctionProblem
from numpy_attention.gradcheck.tolerance import run_backward


def with_ones(f: Any, vjp: Any, *arrays: np.ndarray, **tolerances: float) -> None:
    problem = FunctionProblem(f, vjp, arrays, {})
    with np.errstate(all="ignore"):
        check_small_sizes(problem, run_backward(problem, 0)[1], 0, **tolerances)


def test_a_wrong_squeeze_is_found(rng: np.random.Generator) -> None:
    def linear(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x @ w

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return np.squeeze(dy @ w.T), x.T @ dy

    message = r"with one element along the axis of length 3 \(x \(1, 4\)\) the forward runs, but dx has shape \(4,\)"
    with pytest.raises(GradientError, match=f"gradcheck linear: {message}.*\n.*squeezed away(.|\n)*repeat with seed=0"):
        with_ones(linear, vjp, rng.standard_normal((3, 4)), rng.standard_normal((4, 2)))


def test_wrong_gradients_for_length_one_are_found(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray) -> np.ndarray:
        return x - np.mean(x, 0) / 2

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        axes = tuple(axis for axis in (0, 1) if x.shape[axis] == 1) or (0,)  # to the shape before broadcasting
        return dy - np.mean(dy, axes, keepdims=True) / 2

    message = r"length 4 \(x \(3, 1\)\) the forward runs, but along a direction the gradient gives .*, but differences"
    with pytest.raises(GradientError, match=message):
        with_ones(centred, vjp, rng.standard_normal((3, 4)))


def test_the_length_of_a_table_of_ids_is_not_cut(rng: np.random.Generator) -> None:
    def embed(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
        return table[ids]

    def vjp(dy: np.ndarray, ids: np.ndarray, table: np.ndarray) -> np.ndarray:
        grad = np.zeros_like(table)
        np.add.at(grad, ids, dy)
        return grad

    with_ones(embed, vjp, rng.integers(0, 7, (2, 3)), rng.standard_normal((7, 5)))


TARGET = np.arange(12).reshape(3, 4) / 7


@pytest.mark.parametrize(("f", "vjp"), [
    (lambda x: x - TARGET, lambda dy, x: dy),  # one row would be broadcast, and its gradient summed
    (lambda x: np.sum((x - TARGET) ** 2), lambda dy, x: 2 * dy * (x - TARGET)),
    (lambda x: np.mean(x, 0), lambda dy, x: np.tile(dy / 3, (3, 1))),
    (lambda x: np.mean(x, 0), lambda dy, x: np.broadcast_to(dy / 3, x.shape)),  # right for three rows
    (lambda x: np.std(x, 0), lambda dy, x: dy * (x - x.mean(0)) / (len(x) * x.std(0))),  # 0/0 for one row
], ids=["a target", "a loss", "a shape", "a divisor", "no derivative"])
def test_functions_that_need_a_length_are_not_reported(f: Any, vjp: Any, rng: np.random.Generator) -> None:
    with_ones(f, vjp, rng.standard_normal((3, 4)))


def first_rows(x: np.ndarray, table: np.ndarray) -> Any:
    return x + table[: x.shape[-2]], (x, table)


def first_rows_backward(dy: np.ndarray, cache: Any) -> Any:
    x, table = cache
    dtable = np.zeros_like(table)
    dtable[: x.shape[-2]] = dy.reshape(-1, *x.shape[-2:]).sum(0)
    return dy, dtable


def padded_backward(dy: np.ndarray, cache: Any) -> Any:
    x, table = cache
    return dy, np.pad(dy.reshape(-1, *x.shape[-2:]).sum(0), ((0, len(table) - x.shape[-2]), (0, 0)))


def joined_backward(dy: np.ndarray, cache: Any) -> Any:
    """A wrong shape, without an error, for a table that is too short."""
    x, table = cache
    rest = np.zeros((max(len(table) - x.shape[-2], 0), x.shape[-1]))
    return dy, np.concatenate([dy.reshape(-1, *x.shape[-2:]).sum(0), rest])


def last_rows(x: np.ndarray, table: np.ndarray) -> Any:
    return x + table[-x.shape[-2] :], (x, table)


def last_rows_backward(dy: np.ndarray, cache: Any) -> Any:
    x, table = cache
    dtable = np.zeros_like(table)
    dtable[-x.shape[-2] :] += dy.reshape(-1, *x.shape[-2:]).sum(0)
    return dy, dtable


TABLES = {
    "first": (first_rows, first_rows_backward), "padded": (first_rows, padded_backward),
    "joined": (first_rows, joined_backward), "last": (last_rows, last_rows_backward),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_positions_of_any_length_is_no_false_alarm(name: str, rng: np.random.Generator) -> None:
    noted = 0
    for B in (1, 3):
        for T in (2, 3):
            for longest in (T, 6):
                inputs = {"x": rng.standard_normal((B, T, 5)), "table": rng.standard_normal((longest, 5))}
                report = gradcheck(*TABLES[name], inputs, robustness={"sizes"})
                noted += any("reads only a part of this axis" in note for note in report.notes)
    assert noted > 1


def test_skip_and_nondet_hold_for_cut_axes(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = 2 * dy * x
        dx[0, 0] = 99 if len(x) == 1 else np.nan
        return dx

    x = rng.standard_normal((3, 4))
    mask = np.arange(12).reshape(3, 4) == 0
    assert gradcheck_vjp(lambda x: x * x, vjp, (x,), skip={"x": mask}, robustness="sizes").ok
    with pytest.raises(GradientError, match="along the axis of length 3"):
        gradcheck_vjp(lambda x: x * x, lambda dy, x: vjp(dy, x) * min(len(x) - 0.5, 1), (x,), skip={"x": mask})

    def noisy(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 2 * dy * x + 1e-2 * (len(x) == 1)

    with pytest.raises(GradientError, match="along the axis of length 3"):
        gradcheck_vjp(lambda x: x * x, noisy, (x,))
    assert gradcheck_vjp(lambda x: x * x, noisy, (x,), nondet=1e-2).ok
