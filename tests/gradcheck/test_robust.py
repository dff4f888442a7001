"""Robustness: no state outside the cache, no reused arrays, gradients linear in dy, any layout, axes of length 1.

Two results of one backward are equal up to its round-off. A function that needs a certain length is not reported. The
option `robustness` chooses the checks by name.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from numpy_attention.gradcheck.problem import FunctionProblem, LayerProblem, OpProblem, Problem, run_backward
from numpy_attention.gradcheck.robust import CHECKS, ROBUSTNESS, check_structure
from numpy_attention.gradcheck.spec import draw_inputs
from numpy_attention.layers import Linear


@pytest.mark.parametrize("none", [None, "text", np.zeros(3), np.zeros((2, 3), int)], ids=repr)
def test_a_backward_with_a_different_form_for_zero_dy(none: Any) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> Any:
        return 2 * x * dy if dy.any() else none

    with pytest.raises(GradientError, match="dx is not zero with a dy of zeros"):
        gradcheck_vjp(lambda x: x * x, vjp, {"x": np.arange(6.0).reshape(2, 3)})


def notes_of(problem: Problem, seed: int = 0) -> list[str]:
    return check_structure(problem, *run_backward(problem, seed), seed)


def notes_of_op(op: Any, op_backward: Any, *arrays: Any, **options: Any) -> list[str]:
    return notes_of(OpProblem(op, op_backward, arrays, options))


def notes_of_function(f: Any, vjp: Any, *arrays: Any) -> list[str]:
    return notes_of(FunctionProblem(f, vjp, arrays, {}))


def test_state_in_a_global_is_found(rng: np.random.Generator) -> None:
    kept = {}

    def square(x: np.ndarray) -> Any:
        kept["x"] = x
        return x * x, None

    with pytest.raises(GradientError, match=r"gradcheck square: dx changes when the forward is called once more"):
        notes_of_op(square, lambda dy, cache: 2 * kept["x"] * dy, rng.standard_normal((3, 4)))


def test_state_in_a_layer_is_found(rng: np.random.Generator) -> None:
    class Stateful(Linear):
        def forward(self, x: np.ndarray) -> Any:
            self.x = x
            return super().forward(x)

        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            _, inner = super().forward(self.x)
            return super().backward(dy, inner)

    right, wrong = (kind(3, 4, rng, dtype=np.float64) for kind in (Linear, Stateful))
    x = rng.standard_normal((2, 3))
    assert notes_of(LayerProblem(right, (x,), {})) == []
    with pytest.raises(GradientError, match=r"gradcheck Stateful: dw changes when the forward is called once more"):
        notes_of(LayerProblem(wrong, (x,), {}))
    assert not hasattr(wrong, "x"), "the layer itself stays as it is"


def test_results_in_reused_arrays_are_found(rng: np.random.Generator) -> None:
    rooms: dict[Any, np.ndarray] = {}

    def room(x: np.ndarray, what: str) -> np.ndarray:
        return rooms.setdefault((what, x.shape, x.dtype), np.empty(x.shape, x.dtype))

    x = rng.standard_normal((3, 4))
    with pytest.raises(GradientError, match="a later call changes dx of an earlier call"):
        notes_of_function(lambda x: 3 * x, lambda dy, x: np.multiply(dy, 3, out=room(x, "dx")), x)
    with pytest.raises(GradientError, match="a later call changes the output of an earlier call"):
        notes_of_function(lambda x: np.multiply(x, 3, out=room(x, "y")), lambda dy, x: 3 * dy, x)


def test_a_gradient_that_shares_memory_with_an_input_is_found(rng: np.random.Generator) -> None:
    b = np.zeros(4)  # a gradient of zero that is not a new array
    with pytest.raises(GradientError, match="db shares memory with the input b"):
        notes_of_function(lambda x, b: x + 0 * b, lambda dy, x, b: (dy, b), rng.standard_normal((3, 4)), b)


def test_a_backward_that_is_not_linear_in_dy_is_found() -> None:
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    for seed in range(3):  # right at this dy, wrong at a larger one
        clipping = FunctionProblem(np.sin, lambda dy, x: np.clip(dy, -3, 3) * np.cos(x), (x,), {})
        with pytest.raises(GradientError, match="dx is not linear in dy: it is not -8 times as large"):
            notes_of(clipping, seed)
        doubling = FunctionProblem(np.sin, lambda dy, x: (1 + np.any(abs(dy) > 4)) * dy * np.cos(x), (x,), {})
        with pytest.raises(GradientError, match="dx is not linear in dy"):
            notes_of(doubling, seed)


def test_a_gradient_for_zero_dy_must_be_zero(rng: np.random.Generator) -> None:
    def normalized(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        size = np.abs(dy).max()
        return size * (dy / size * np.cos(x))

    x = rng.standard_normal((2, 3))
    with pytest.raises(GradientError, match="dx is not zero with a dy of zeros"):
        notes_of_function(np.sin, normalized, x)
    with pytest.raises(GradientError, match="dx is not zero with a dy of zeros"):
        notes_of_function(np.sin, lambda dy, x: np.where(dy == 0, 0.5, dy * np.cos(x)), x)


MASK = np.arange(12).reshape(3, 4) % 3 != 0
RIGHT: dict[str, tuple[Any, Any, tuple[tuple[int, ...], ...]]] = {
    "identity": (lambda x: x, lambda dy, x: dy, ((3, 4),)),
    "reshape, a view": (lambda x: x.reshape(-1), lambda dy, x: dy.reshape(x.shape), ((3, 4),)),
    "transpose, a view": (lambda x: x.T, lambda dy, x: dy.T, ((3, 4),)),
    "backwards, a view": (lambda x: x[::-1], lambda dy, x: dy[::-1], ((3, 4),)),
    "sum, broadcast": (lambda x: x.sum(0), lambda dy, x: np.broadcast_to(dy, x.shape), ((3, 4),)),
    "sum of all": (lambda x: x.sum(), lambda dy, x: dy * np.ones_like(x), ((3, 4),)),
    "outputs and gradients in lists": (
        lambda x, y: [x + y, x * y], lambda dy, x, y: [dy[0] + dy[1] * y, dy[0] + dy[1] * x], ((3, 4), (3, 4)),
    ),
    "a mask of fixed size": (lambda x: x * MASK, lambda dy, x: dy * MASK, ((3, 4),)),
    "a target of fixed size": (lambda x: np.sum((x - MASK) ** 2), lambda dy, x: 2 * dy * (x - MASK), ((3, 4),)),
    "divided by a fixed number": (lambda x: np.mean(x**2), lambda dy, x: 2 * dy * x / 12, ((3, 4),)),
    "an axis of two, divided by a fixed number": (lambda x: np.mean(x**2, 0), lambda dy, x: dy * x, ((2, 5),)),
    "standard deviation": (
        lambda x: x.std(1), lambda dy, x: (dy / x.std(1) / x.shape[1])[:, None] * (x - x.mean(1)[:, None]), ((3, 4),),
    ),
    "maximum": (
        lambda x: x.max(1), lambda dy, x: dy[:, None] * (np.arange(x.shape[1]) == x.argmax(1)[:, None]), ((3, 4),),
    ),
    "product of matrices": (lambda a, b: a @ b, lambda dy, a, b: (dy @ b.T, a.T @ dy), ((3, 4), (4, 2))),
    "inverse": (np.linalg.inv, lambda dy, a: -np.linalg.inv(a).T @ dy @ np.linalg.inv(a).T, ((3, 3),)),
    "nothing at all": (lambda x: 2 * x, lambda dy, x: 2 * dy, ((0, 4),)),
    "a number": (lambda x: x**3, lambda dy, x: 3 * x**2 * dy, ((),)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", RIGHT)
def test_no_false_alarm_and_no_note(name: str, dtype: type, rng: np.random.Generator) -> None:
    f, vjp, shapes = RIGHT[name]
    assert notes_of_function(f, vjp, *(rng.standard_normal(shape).astype(dtype) for shape in shapes)) == []


def test_a_gradient_of_pure_round_off_raises_no_alarm(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return x + b - np.mean(x + b, -1, keepdims=True)

    def vjp(dy: np.ndarray, x: np.ndarray, b: np.ndarray) -> Any:
        dx = dy - np.mean(dy, -1, keepdims=True)
        return dx, dx.sum(-1, keepdims=True)

    assert notes_of_function(centred, vjp, rng.standard_normal((3, 50)), rng.standard_normal((3, 1))) == []


def test_results_of_pure_round_off_raise_no_alarm() -> None:
    x = np.full((4, 3), 0.1)
    assert notes_of_function(lambda x: x.var(-1), lambda dy, x: 2 / 3 * dy[:, None] * (x - x.mean(1)[:, None]), x) == []


def in_layouts(f: Any, vjp: Any, *arrays: np.ndarray) -> None:
    problem = FunctionProblem(f, vjp, arrays, {})
    check_structure(problem, *run_backward(problem, 0), 0, robustness="layouts")


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((3, 4))


def test_a_write_into_dy_that_changes_nothing_is_found(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dy[np.isnan(dy)] = 0
        return dy * np.cos(x)

    message = r"the backward raises ValueError \(.*\) if dy is read-only; the code writes into its argument"
    with pytest.raises(GradientError, match=f"gradcheck sin: {message}"):
        in_layouts(np.sin, vjp, x)


def test_a_write_into_an_input_that_changes_nothing_is_found(x: np.ndarray) -> None:
    def doubled(x: np.ndarray) -> np.ndarray:
        x += 0
        return 2 * x

    with pytest.raises(GradientError, match=r"the forward raises ValueError \(.*\) if the inputs are read-only"):
        in_layouts(doubled, lambda dy, x: 2 * dy, x)


def forgetful(x: np.ndarray) -> Any:
    return x * x, [x]


MISTAKES_BY_CHECK: dict[str, tuple[Any, Any]] = {
    "repeated": (forgetful, lambda dy, cache: 2 * dy * cache[0] * (len(cache) < 4 or 1.01) + 0 * bool(cache.append(0))),
    "memory": (lambda x: (x + 0 * x, x), lambda dy, x: np.multiply(dy, 1, out=x) if dy.sum() == 0 else dy),
    "linear": (lambda x: (3 * x, None), lambda dy, cache: 3 * np.clip(dy, -3, 3)),
    "separate": (lambda x: (x * x, KEPT.update(x=x)), lambda dy, cache: 2 * dy * KEPT["x"]),
    "layouts": (lambda x: (x * x, x), lambda dy, x: 2 * dy * x * (1 if dy.flags.c_contiguous else 2)),
    "sizes": (lambda x: (x * x, x), lambda dy, x: 2 * dy * x * (1 if len(x) > 1 else 2)),
}
KEPT: dict[str, np.ndarray] = {}


@pytest.mark.parametrize("name", sorted(ROBUSTNESS - {"memory"}))
def test_each_check_finds_its_mistake_alone_and_the_others_do_not(name: str) -> None:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    with pytest.raises(GradientError):
        gradcheck(*MISTAKES_BY_CHECK[name], (x,), robustness={name})
    assert gradcheck(*MISTAKES_BY_CHECK[name], (x,), robustness=ROBUSTNESS - {name}).ok
    report = gradcheck(*MISTAKES_BY_CHECK[name], (x,), robustness=False)
    assert f"robustness was not checked: {', '.join(CHECKS)}\n" in str(report)


def test_shared_memory_is_found_only_by_its_check(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray, b: np.ndarray) -> Any:
        return dy, b

    inputs = (rng.standard_normal((3, 4)), np.zeros(4))
    with pytest.raises(GradientError, match="db shares memory with the input b"):
        gradcheck_vjp(lambda x, b: x + 0 * b, vjp, inputs, robustness="memory")
    report = gradcheck_vjp(lambda x, b: x + 0 * b, vjp, inputs, robustness=ROBUSTNESS - {"memory"})
    assert report.notes == ["robustness was not checked: memory"]


@pytest.mark.parametrize(
    "names", ["layout", {"linear", "layout"}, ["layout"], 3, None, [["linear"]], np.array(1)]
)
def test_a_wrong_name_of_a_check_is_one_line_with_all_names(names: Any) -> None:
    with pytest.raises(ValueError, match=r"robustness must be True, False, or hold names among (.*), got") as caught:
        gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (np.ones(3),), robustness=names)
    assert all(f" {name}," in str(caught.value) for name in CHECKS)
    assert "\n" not in str(caught.value)


def with_ones(f: Any, vjp: Any, *arrays: np.ndarray, **tolerances: float) -> None:
    problem = FunctionProblem(f, vjp, arrays, {})
    check_structure(problem, *run_backward(problem, 0), 0, robustness="sizes", **tolerances)


def test_a_wrong_squeeze_is_found(rng: np.random.Generator) -> None:
    def linear(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x @ w

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return np.squeeze(dy @ w.T), x.T @ dy

    message = r"with one element along the axis of length 3 the forward runs, but dx has shape \(4,\)"
    with pytest.raises(GradientError, match=f"gradcheck linear: {message}.*\n.*squeezed away(.|\n)*repeat with seed=0"):
        with_ones(linear, vjp, rng.standard_normal((3, 4)), rng.standard_normal((4, 2)))


def test_wrong_gradients_for_length_one_are_found(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray) -> np.ndarray:
        return x - np.mean(x, 0) / 2

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        axes = tuple(axis for axis in (0, 1) if x.shape[axis] == 1) or (0,)  # to the shape before broadcasting
        return dy - np.mean(dy, axes, keepdims=True) / 2

    message = r"length 4 the forward runs, but along a direction the gradient gives .*, but differences"
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
    for B in (1, 3):
        for T in (2, 3):
            for longest in (T, 6):
                inputs = {"x": rng.standard_normal((B, T, 5)), "table": rng.standard_normal((longest, 5))}
                assert gradcheck(*TABLES[name], inputs, robustness={"sizes"}).ok


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("rotated", [1, 2, 3])
def test_factors_for_the_first_features_are_no_false_alarm(d: int, rotated: int, rng: np.random.Generator) -> None:
    """One feature would be broadcast to the number of factors."""

    def scaled(x: np.ndarray, cos: np.ndarray) -> np.ndarray:
        r = cos.shape[-1]
        return np.concatenate([x[:, :r] * cos, x[:, r:]], -1)

    def vjp(dy: np.ndarray, x: np.ndarray, cos: np.ndarray) -> Any:
        r = cos.shape[-1]
        return np.concatenate([dy[:, :r] * cos, dy[:, r:]], -1), dy[:, :r] * x[:, :r]

    if rotated <= d:
        with_ones(scaled, vjp, rng.standard_normal((4, d)), rng.standard_normal((4, rotated)))


@pytest.mark.parametrize("offsets", [[0, 4, 5], [0, 2], [0, 1, 1, 3], [0]])
@pytest.mark.parametrize("count", [4, 6])
def test_offsets_beyond_the_cut_ids_are_no_false_alarm(
    offsets: list[int], count: int, rng: np.random.Generator
) -> None:
    def bag(table: np.ndarray, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        ends = np.append(offsets[1:], len(ids))
        return np.stack([table[ids[start:end]].sum(0) for start, end in zip(offsets, ends)])

    def vjp(dy: np.ndarray, table: np.ndarray, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        dtable = np.zeros_like(table)
        np.add.at(dtable, ids, np.repeat(dy, np.diff(np.append(offsets, len(ids))), axis=0))
        return dtable

    if offsets[-1] < count:
        with_ones(bag, vjp, rng.standard_normal((7, 2)), rng.integers(0, 7, count), np.array(offsets))


@pytest.mark.parametrize("shape", [(4, 3), (4, 2), (3, 2), (2, 2), (2, 3, 2), (5, 1)])
def test_a_tall_matrix_that_becomes_wide_is_no_false_alarm(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    def vjp(grads: Any, a: np.ndarray) -> np.ndarray:
        (dq, dr), (q, r) = grads, np.linalg.qr(a)
        m = r @ np.triu(dr).swapaxes(-1, -2) - dq.swapaxes(-1, -2) @ q
        both = np.tril(m) + np.tril(m, -1).swapaxes(-1, -2)
        return np.linalg.solve(r, (dq + q @ both).swapaxes(-1, -2)).swapaxes(-1, -2)

    with_ones(lambda a: tuple(np.linalg.qr(a)), vjp, rng.standard_normal(shape))


@pytest.mark.parametrize("shape", [(5, 2), (5, 3), (3, 4), (2, 4), (2, 2)])
def test_a_squeezed_batch_is_found_in_tall_and_wide_arrays_and_with_labels(
    shape: tuple[int, int], rng: np.random.Generator
) -> None:
    def loss(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.log(np.exp(x).sum(-1)) - x[np.arange(len(x)), labels]

    def vjp(dy: np.ndarray, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
        p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return np.squeeze((p - np.eye(x.shape[1])[labels]) * dy[:, None])

    with pytest.raises(GradientError, match=rf"axis of length {shape[0]} the forward runs, but dx has shape"):
        with_ones(loss, vjp, rng.standard_normal(shape), np.arange(shape[0]) % shape[1])


def test_a_step_fits_arguments_of_very_different_sizes() -> None:
    drawn = draw_inputs("x: ... d, w: positive d", {"...": (5,), "d": 4}, 2054, special=True)
    assert np.all(drawn["w"] < 1e-6)

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        total = np.sum(w)
        return dy[:, None] * w / total, ((x - (x @ w / total)[:, None]) * dy[:, None]).sum(0) / total

    for seed in range(10):
        problem = FunctionProblem(lambda x, w: x @ w / np.sum(w), vjp, drawn, {})
        assert check_structure(problem, *run_backward(problem, seed), seed) == []


def test_one_element_whose_gradient_is_far_smaller_is_no_false_alarm() -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return (p - np.eye(3)[0]) * dy[:, None]

    x = np.array([[200.0, 0.0, -1.0], [0.3, 0.5, 0.7]])  # the loss of the first row is zero, its gradient 1e-87
    with_ones(lambda x: np.log(np.exp(x).sum(-1)) - x[:, 0], vjp, x)


@pytest.mark.parametrize("scale", [1e150, 1e160, 1e200, 1e307])
def test_very_large_gradients_are_no_false_alarm(scale: float, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    assert notes_of_function(lambda x: scale * np.sin(x), lambda dy, x: scale * np.cos(x) * dy, x) == []
    assert notes_of_function(lambda x: x / scale, lambda dy, x: dy / scale, scale * x) == []


def test_the_gradient_of_an_argument_called_y_is_not_called_dy(x: np.ndarray) -> None:
    with pytest.raises(GradientError, match=r"d\(argument y\) is not linear in dy"):
        notes_of_function(lambda y: y**3, lambda dy, y: np.clip(dy, -3, 3) * 3 * y**2, x)


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
