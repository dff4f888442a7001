"""Robustness: no state outside the cache, no reused arrays, gradients linear in dy, any layout, axes of length 1.

Two results of one backward are equal up to its round-off. A function that needs a certain length is not reported. The
option `robustness` chooses the checks by name.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from numpy_attention.gradcheck.problem import FunctionProblem, LayerProblem, Problem, run_backward
from numpy_attention.gradcheck.robust import CHECKS, ROBUSTNESS, check_structure
from numpy_attention.layers import Linear


def notes_of(problem: Problem, seed: int = 0) -> list[str]:
    return check_structure(problem, *run_backward(problem, seed), seed)


def notes_of_function(f: Any, vjp: Any, *arrays: Any) -> list[str]:
    return notes_of(FunctionProblem(f, vjp, arrays, {}))


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
    "names", ["layout", {"linear", "layout"}, 3]
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


def test_a_write_into_an_input_that_changes_nothing_is_found(x: np.ndarray) -> None:
    def doubled(x: np.ndarray) -> np.ndarray:
        x += 0
        return 2 * x

    with pytest.raises(GradientError, match=r"the forward raises ValueError \(.*\) if the inputs are read-only"):
        in_layouts(doubled, lambda dy, x: 2 * dy, x)
