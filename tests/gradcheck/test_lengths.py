"""Axes of length 1 must give right gradients too; a function that needs a certain length is not reported."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from numpy_attention.gradcheck.lengths import another_length, check_small_sizes, lengths, resized
from numpy_attention.gradcheck.problem import FunctionProblem
from numpy_attention.gradcheck.tolerance import run_backward


def with_ones(f: Any, vjp: Any, *arrays: np.ndarray, **tolerances: float) -> None:
    problem = FunctionProblem(f, vjp, arrays, {})
    with np.errstate(all="ignore"):
        check_small_sizes(problem, run_backward(problem, 0)[1], 0, **tolerances)


def test_all_axes_of_a_length_are_cut_together(rng: np.random.Generator) -> None:
    arrays = {"x": rng.standard_normal((3, 4)), "ids": np.arange(3), "w": rng.standard_normal((4, 4)), "n": 3}
    problem = FunctionProblem(lambda x, ids, w, n: x @ w, lambda *_: None, tuple(arrays.values()), {})
    assert lengths(problem) == [3, 4]
    cut = resized(arrays, 4, [0])
    assert [np.shape(value) for value in cut.values()] == [(3, 1), (3,), (1, 1), ()]
    assert np.array_equal(cut["x"], arrays["x"][:, :1])
    shorter = another_length(arrays, 4)
    assert shorter is not None
    assert np.array_equal(resized(arrays, 4, shorter)["w"], arrays["w"][:3, :3])
    longer = another_length({"x": np.ones((2, 3))}, 2)
    assert longer is not None
    assert resized({"x": np.ones((2, 3))}, 2, longer)["x"].shape == (3, 3)
    assert another_length({"x": np.ones((2, 2))}, 2) is None, "a longer matrix would be singular"


def test_a_wrong_squeeze_is_found(rng: np.random.Generator) -> None:
    def linear(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x @ w

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return np.squeeze(dy @ w.T), x.T @ dy

    message = r"with one element along the axis of length 3 \(x \(1, 4\)\) the forward runs, but dx has shape \(4,\)"
    with pytest.raises(GradientError, match=f"gradcheck linear: {message}.*\n.*squeezed away(.|\n)*repeat with seed=0"):
        with_ones(linear, vjp, rng.standard_normal((3, 4)), rng.standard_normal((4, 2)))


def test_a_backward_that_raises_for_length_one_is_found(rng: np.random.Generator) -> None:
    def total(x: np.ndarray) -> np.ndarray:
        return np.sum(x * x, 1)

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 2 * np.squeeze(dy)[:, None] * x

    with pytest.raises(GradientError, match=r"length 2 \(x \(1, 5\)\) the forward runs, but the backward raises"):
        with_ones(total, vjp, rng.standard_normal((2, 5)))


def test_one_step_fits_arguments_of_very_different_sizes(rng: np.random.Generator) -> None:
    x = np.repeat([[0.027], [0.37], [0.063], [1.63], [1.97]], 4, axis=1)
    w = np.array([9.2e-7, 6.4e-7, 3.2e-7, 4.2e-8])

    def mean(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x @ w / np.sum(w)

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return dy[:, None] * w / np.sum(w), dy @ (x - mean(x, w)[:, None]) / np.sum(w)

    def wrong_for_one_row(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        dx, dw = vjp(dy, x, w)
        return dx, dw if len(x) > 1 else 1.01 * dw

    with_ones(mean, vjp, x, w)
    with_ones(mean, vjp, x + rng.standard_normal(x.shape), w)
    with pytest.raises(GradientError, match="with one element along the axis of length 5"):
        with_ones(mean, wrong_for_one_row, x + rng.standard_normal(x.shape), w)


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


def test_a_fixed_index_needs_a_length(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = dy * np.cos(x)
        dx[1] = dy[1] * np.cos(x[1])
        return dx

    with_ones(np.sin, vjp, rng.standard_normal(5))


def test_a_corner_is_not_reported_as_a_mistake() -> None:
    def gap(x: np.ndarray) -> np.ndarray:  # with one element |x - mean| is 0 everywhere; with more, dy sign
        return np.abs(x - x[::-1])

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        grad = dy * np.sign(x - x[::-1])
        return grad - grad[::-1]

    with_ones(gap, vjp, np.array([0.3, -1.0, 2.0, 0.7]))


def test_rtol_is_used_for_cut_axes(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.cos(x) * (1.01 if len(x) == 1 else 1.0)

    x = rng.standard_normal((3, 2))
    with pytest.raises(GradientError, match="differences give"):
        with_ones(np.sin, vjp, x)
    with_ones(np.sin, vjp, x, rtol=0.02)
    with_ones(np.sin, vjp, x, atol=0.02)


def test_a_gradient_that_holds_no_floats_for_a_batch_of_one_is_named() -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 3 * dy if len(x) > 1 else np.zeros(x.shape, object)

    with pytest.raises(GradientError, match=r"with one element along the axis of length 4 .* dx holds object, x holds"):
        gradcheck_vjp(lambda x: 3 * x, vjp, (np.arange(8.0).reshape(4, 2),))


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
    for B in (1, 2, 3, 4):
        for T in (1, 2, 3, 4):
            for longest in range(T, 7):
                inputs = {"x": rng.standard_normal((B, T, 5)), "table": rng.standard_normal((longest, 5))}
                report = gradcheck(*TABLES[name], inputs, robustness={"sizes"})
                noted += any("reads only a part of this axis" in note for note in report.notes)
    assert noted > 10


def test_a_square_table_of_biases_may_be_cut_to_its_corner(rng: np.random.Generator) -> None:
    def biased(scores: np.ndarray, table: np.ndarray) -> np.ndarray:
        return scores + table[: scores.shape[1], : scores.shape[2]]

    def vjp(dy: np.ndarray, scores: np.ndarray, table: np.ndarray) -> Any:
        dtable = np.zeros_like(table)
        dtable[: scores.shape[1], : scores.shape[2]] = dy.sum(0)
        return dy, dtable

    for T in (2, 3):
        report = gradcheck_vjp(biased, vjp, (rng.standard_normal((4, T, T)), rng.standard_normal((6, 6))))
        where = "with one element along the axis of length 6 (table (1, 1))"
        assert report.notes == [f"not checked {where}: the function reads only a part of this axis"]


@pytest.mark.parametrize("turned", [2, 3])
def test_a_rotation_of_the_first_features_may_broadcast_one_feature(turned: int, rng: np.random.Generator) -> None:
    def f(x: np.ndarray, table: np.ndarray) -> np.ndarray:
        return np.concatenate([x[:, :turned] * table, x[:, turned:]], axis=1)

    def vjp(dy: np.ndarray, x: np.ndarray, table: np.ndarray) -> Any:
        return np.concatenate([dy[:, :turned] * table, dy[:, turned:]], axis=1), dy[:, :turned] * x[:, :turned]

    x, table = rng.standard_normal((4, 6)), rng.standard_normal((4, turned))
    where = "with one element along the axis of length 6 (x (4, 1))"
    report = gradcheck_vjp(f, vjp, (x, table))
    assert report.notes == [f"not checked {where}: the forward broadcasts this element to a longer output"]
    with pytest.raises(GradientError, match="the forward runs, but dx has shape"):
        gradcheck_vjp(np.sin, lambda dy, x: np.squeeze(dy * np.cos(x)), (x,))


def test_a_table_does_not_hide_a_mistake_for_a_batch_of_one(rng: np.random.Generator) -> None:
    def squeezed(dy: np.ndarray, cache: Any) -> Any:
        return first_rows_backward(dy, cache)[0], np.squeeze(first_rows_backward(dy, cache)[1] * min(len(dy) - 0.5, 1))

    def raises(dy: np.ndarray, cache: Any) -> Any:
        return dy, first_rows_backward(np.squeeze(dy)[:, :, :], cache)[1]

    inputs = {"x": rng.standard_normal((3, 2, 4)), "table": rng.standard_normal((7, 4))}
    for backward in (squeezed, raises):
        with pytest.raises(GradientError, match=r"along the axis of length 3 \(x \(1, 2, 4\)\) the forward runs, but"):
            gradcheck(first_rows, backward, inputs)


def test_a_mean_that_raises_for_one_row_is_found(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.squeeze(np.ones((len(x), 1, 4)) / x.size)[:, :] * np.ones(x.shape)

    with pytest.raises(GradientError, match=r"length 3 \(x \(1, 4\)\) the forward runs, but the backward raises"):
        gradcheck_vjp(lambda x: x.mean(), vjp, (rng.standard_normal((3, 4)),))


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
