"""Robustness: no state outside the cache, no reused arrays, gradients linear in dy.

Two results of one backward are equal up to its round-off. Arrays in other layouts must give right gradients too. The
option `robustness` chooses the checks by name.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import FunctionProblem, LayerProblem, OpProblem, Problem
from numpy_attention.gradcheck.robustness import (
    CHECKS,
    LAYOUTS,
    ROBUSTNESS,
    FirstRun,
    check_layouts,
    check_structure,
    root_of_eps,
    spaced,
    strided,
)
from numpy_attention.gradcheck.tolerance import run_backward
from numpy_attention.layers import Linear


def first_run(op: Any, op_backward: Any, *arrays: np.ndarray, rtol: float = 0.0, atol: float = 0.0) -> FirstRun:
    problem = OpProblem(op, op_backward, arrays, {})
    return FirstRun(problem, problem.run(problem.inputs)[0], *run_backward(problem, 0), 0, rtol, atol)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sum_in_another_order_is_equal_and_a_lost_element_is_not(dtype: type, rng: np.random.Generator) -> None:
    run = first_run(ops.silu, ops.silu_backward, rng.standard_normal((5, 7)).astype(dtype))
    grad = run.grads["x"]
    assert grad is not None
    few = (grad * (1 + 10 * np.finfo(dtype).eps)).astype(dtype)
    assert run.differing({"x": few}, run.grads) is None
    lost = grad.copy()
    lost[2, 3] = 0
    assert run.differing({"x": lost}, run.grads) == "x"
    lost[2, 3] = np.nan
    assert run.differing({"x": lost}, run.grads) == "x"
    assert run.differing({"x": grad[0]}, run.grads) == "x"
    assert run.differing({}, run.grads) == "x"
    assert run.differing({}, {"x": None}) is None


def test_a_gradient_of_pure_round_off_may_change_by_more_than_its_size(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray, b: np.ndarray) -> Any:
        return x + b - np.mean(x + b, -1, keepdims=True), None

    def centred_backward(dy: np.ndarray, cache: Any) -> Any:
        dx = dy - np.mean(dy, -1, keepdims=True)
        return dx, dx.sum(-1, keepdims=True)

    run = first_run(centred, centred_backward, rng.standard_normal((3, 50)), rng.standard_normal((3, 1)))
    dust = np.asarray(run.grads["b"])
    assert 0 < np.abs(dust).max() < 1e-13
    assert run.differing({"b": -3 * dust}, {"b": dust}) is None
    assert run.differing({"b": dust + 1e-9}, {"b": dust}) == "b"


def test_rtol_and_atol_are_used(rng: np.random.Generator) -> None:
    x = rng.standard_normal(6)
    grad = np.asarray(first_run(ops.silu, ops.silu_backward, x).grads["x"])
    for tolerance, other in (({"rtol": 0.02}, 1.01 * grad), ({"atol": 0.02}, grad + 0.01)):
        assert first_run(ops.silu, ops.silu_backward, x).differing({"x": other}, {"x": grad}) == "x"
        assert first_run(ops.silu, ops.silu_backward, x, **tolerance).differing({"x": other}, {"x": grad}) is None


def test_errors_are_relative_to_the_terms_that_cancel(rng: np.random.Generator) -> None:
    run = first_run(ops.silu, ops.silu_backward, rng.standard_normal(6))
    small, size = {"x": np.full(6, 1e-8)}, {"x": np.full(6, 10.0)}
    assert run.differing({"x": np.full(6, 2e-8)}, small) == "x"
    assert run.differing({"x": np.full(6, 2e-8)}, small, size) is None


def test_the_root_of_the_last_bit() -> None:
    assert root_of_eps(np.ones(1, np.float32)) == pytest.approx(3.45e-4, rel=1e-2)
    assert root_of_eps(np.ones(1, np.int64)) == 0.0


@pytest.mark.parametrize("none", [None, "text", np.zeros(3), np.zeros((2, 3), int)], ids=repr)
def test_a_backward_with_a_different_form_for_zero_dy(none: Any) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> Any:
        return 2 * x * dy if dy.any() else none

    with pytest.raises(GradientError, match="with another dy the backward returns no dx of floats in the shape of x"):
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


def test_a_mask_in_a_global_is_found_even_if_it_hides_little(rng: np.random.Generator) -> None:
    kept = {}

    def relu(x: np.ndarray) -> Any:
        kept["on"] = x > 0
        return x * kept["on"], None

    with pytest.raises(GradientError, match="is data stored outside the cache, in self, in a global"):
        notes_of_op(relu, lambda dy, cache: kept["on"] * dy, rng.standard_normal((3, 4)))


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


def test_a_dropout_mask_in_a_global_is_found(rng: np.random.Generator) -> None:
    kept = {}

    def dropout(x: np.ndarray, generator: np.random.Generator) -> Any:
        kept["mask"] = 2.0 * (generator.random(x.shape) < 0.5)
        return x * kept["mask"], kept["mask"]

    x = np.ones((3, 4))  # so that only the mask differs
    assert notes_of_op(dropout, lambda dy, mask: mask * dy, x, generator=np.random.default_rng(0)) == []
    with pytest.raises(GradientError, match="dx changes when the forward is called once more"):
        notes_of_op(dropout, lambda dy, mask: kept["mask"] * dy, x, generator=np.random.default_rng(0))


def test_a_tape_that_needs_backwards_in_order_is_found(rng: np.random.Generator) -> None:
    tape: list[np.ndarray] = []

    def square(x: np.ndarray) -> Any:
        tape.append(x)
        return x * x, len(tape)

    def square_backward(dy: np.ndarray, length: int) -> np.ndarray:
        return 2 * dy * tape[-1]

    with pytest.raises(GradientError, match="dx changes when the forward is called once more"):
        notes_of_op(square, square_backward, rng.standard_normal(5))


def test_a_tape_that_becomes_empty_is_found(rng: np.random.Generator) -> None:
    tape: list[np.ndarray] = []

    def square(x: np.ndarray) -> Any:
        tape[:] = [x, x, x]
        return x * x, None

    def square_backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        return 2 * dy * tape.pop()

    problem = OpProblem(square, square_backward, (rng.standard_normal(5),), {})
    dy, grads = run_backward(problem, 0)
    with pytest.raises(GradientError, match=r"the backward raises IndexError .* when the backward runs several times"):
        check_structure(problem, dy, grads, 0)


def test_a_cache_in_a_reused_array_is_found(rng: np.random.Generator) -> None:
    room = np.empty((3, 4))

    def square(x: np.ndarray) -> Any:
        cache = room if x.shape == room.shape else np.empty(x.shape)
        cache[...] = 2 * x
        return x * x, cache

    with pytest.raises(GradientError, match="in a global or in a reused array"):
        notes_of_op(square, lambda dy, cache: cache * dy, rng.standard_normal((3, 4)))


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
        with pytest.raises(GradientError, match=r"dx is not linear in dy: 8 dy gives \d\.\d+ times the"):
            notes_of(clipping, seed)
        doubling = FunctionProblem(np.sin, lambda dy, x: (1 + np.any(abs(dy) > 4)) * dy * np.cos(x), (x,), {})
        with pytest.raises(GradientError, match="dx is not linear in dy: 8 dy gives 16 times the gradient"):
            notes_of(doubling, seed)


def test_a_gradient_for_zero_dy_must_be_zero(rng: np.random.Generator) -> None:
    def normalized(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        size = np.abs(dy).max()
        return size * (dy / size * np.cos(x))

    x = rng.standard_normal((2, 3))
    with pytest.raises(GradientError, match="dx holds nan although dy is zero everywhere"):
        notes_of_function(np.sin, normalized, x)
    with pytest.raises(GradientError, match=r"dx holds 0\.5 although dy is zero everywhere"):
        notes_of_function(np.sin, lambda dy, x: np.where(dy == 0, 0.5, dy * np.cos(x)), x)


def test_gradients_that_share_memory_give_a_note(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 3, 4))
    (note,) = notes_of_function(lambda x, y: x + y, lambda dy, x, y: (dy, dy), x, y)
    assert note == "dx and dy share memory: adding to one in place changes the other; return a copy"
    assert notes_of_function(lambda x, y: x + y, lambda dy, x, y: (dy, dy.copy()), x, y) == []


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
    "a mask of its own": (lambda x: x * MASK, lambda dy, x: dy * MASK, ((3, 4),)),
    "a target of its own": (lambda x: np.sum((x - MASK) ** 2), lambda dy, x: 2 * dy * (x - MASK), ((3, 4),)),
    "a size of its own": (lambda x: np.mean(x**2), lambda dy, x: 2 * dy * x / 12, ((3, 4),)),
    "two and a size of its own": (lambda x: np.mean(x**2, 0), lambda dy, x: dy * x, ((2, 5),)),
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


def test_an_iteration_that_stops_early_is_right_to_its_tolerance(rng: np.random.Generator) -> None:
    def root(x: np.ndarray, tolerance: float = 0.0) -> np.ndarray:
        y = np.ones_like(x)
        for _ in range(60):
            y = y + 0.1 * (x - y * y)
            if np.abs(x - y * y).max() < tolerance:
                break
        return y

    x = rng.uniform(1, 2, (3, 4))

    def half(dy: np.ndarray, x: np.ndarray) -> np.ndarray:  # u = dy / 2y by a fixed point that stops at 1e-3
        u, y = np.zeros_like(dy), np.sqrt(x)
        while np.abs(dy - 2 * y * u).max() > 1e-3:
            u = u + 0.2 * (dy - 2 * y * u)
        return u

    problem = FunctionProblem(root, half, (x,), {})
    dy, grads = run_backward(problem, 0)
    with pytest.raises(GradientError, match="not linear"):
        check_structure(problem, dy, grads, 0)
    assert check_structure(problem, dy, grads, 0, rtol=0.0, atol=5e-3) == []


def test_the_robustness_checks_take_about_thirty_calls(rng: np.random.Generator) -> None:
    calls = []

    def linear(x: np.ndarray, w: np.ndarray) -> Any:
        calls.append("forward")
        return ops.linear(x, w)

    def linear_backward(dy: np.ndarray, cache: Any) -> Any:
        calls.append("backward")
        return ops.linear_backward(dy, cache)[:2]

    problem = OpProblem(linear, linear_backward, (rng.standard_normal((2, 3)), rng.standard_normal((3, 4))), {})
    found = run_backward(problem, 0)
    calls.clear()
    check_structure(problem, *found, 0)
    assert 20 < len(calls) < 45


def test_a_dropout_mask_in_a_layer_is_found(rng: np.random.Generator) -> None:
    class Dropout(Linear):
        def forward(self, x: np.ndarray, generator: np.random.Generator) -> Any:
            y, cache = super().forward(x)
            self.mask = generator.random(y.shape) < 0.5
            return y * self.mask, cache

        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            return super().backward(dy * self.mask, cache)

    layer = Dropout(3, 4, rng, dtype=np.float64)
    with pytest.raises(GradientError, match="changes when the forward is called once more"):
        notes_of(LayerProblem(layer, (np.ones((5, 3)),), {"generator": np.random.default_rng(0)}))


def test_round_off_that_one_dy_does_not_show_raises_no_alarm() -> None:
    """Saturated attention with one query: its gradient is pure round-off, which is larger for another dy."""
    entry = CATALOGUE["scaled_dot_product_attention: saturated"]
    sizes = {"B": 1, "H": 2, "T_q": 1, "d_k": 4, "T_k": 4, "d_v": 4}
    for seed in range(12, 24):
        assert check(entry.case(seed, np.float64, sizes).problem(), seed).ok


def in_layouts(f: Any, vjp: Any, *arrays: np.ndarray) -> None:
    problem = FunctionProblem(f, vjp, arrays, {})
    dy, grads = run_backward(problem, 0)
    check_layouts(FirstRun(problem, problem.run(problem.inputs)[0], dy, grads, 0, 0.0, 0.0))


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((3, 4))


def test_layouts_keep_the_values(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    for layout in LAYOUTS.values():
        y = layout(x)
        assert np.array_equal(x, y)
        assert y.dtype == x.dtype
        assert not np.shares_memory(x, y)
        for odd in (np.zeros((0, 3)), np.array(2.0)):
            assert np.array_equal(layout(odd), odd)
            assert isinstance(layout(odd), np.ndarray)
    assert not LAYOUTS["is read-only"](x).flags.writeable
    assert LAYOUTS["is in Fortran order"](x).flags.f_contiguous
    assert not spaced(x).flags.forc
    assert all(stride > 0 for stride in spaced(x).strides)
    assert all(stride < 0 for stride in strided(x).strides)


def test_a_write_into_dy_that_changes_nothing_is_found(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dy[np.isnan(dy)] = 0
        return dy * np.cos(x)

    message = "if dy is read-only, the backward raises ValueError: .*read-only; the code writes into its argument"
    with pytest.raises(GradientError, match=f"gradcheck sin: {message}"):
        in_layouts(np.sin, vjp, x)


def test_a_write_into_an_input_that_changes_nothing_is_found(x: np.ndarray) -> None:
    def doubled(x: np.ndarray) -> np.ndarray:
        x += 0
        return 2 * x

    with pytest.raises(GradientError, match="gradcheck doubled: if x is read-only, the forward raises ValueError"):
        in_layouts(doubled, lambda dy, x: 2 * dy, x)


def test_a_write_into_a_copy_is_found(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.empty_like(dy)
        dx[...] = 0
        dx.reshape(-1)[:] = dy.reshape(-1)
        return dx * np.cos(x)

    with pytest.raises(GradientError, match=r"if dy is in Fortran order, dx changes; np\.empty_like"):
        in_layouts(np.sin, vjp, x)


def test_code_that_uses_the_memory_order_is_found(x: np.ndarray, rng: np.random.Generator) -> None:
    y = rng.standard_normal(12)

    def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x.flatten("A") @ y

    def vjp(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
        return dy * y.reshape(x.shape), dy * x.flatten("A")

    with pytest.raises(GradientError, match="if x is in Fortran order, the result of the forward changes"):
        in_layouts(dot, vjp, x, y)

    def dot_in_order(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x.reshape(-1) @ y

    with pytest.raises(GradientError, match="gradcheck dot_in_order: if x is in Fortran order, dy changes"):
        in_layouts(dot_in_order, vjp, x, y)


def test_hand_written_strides_are_found(x: np.ndarray) -> None:
    def pairs(x: np.ndarray) -> np.ndarray:
        return x[:, 1:] + x[:, :-1]

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.zeros(x.shape)
        windows = np.lib.stride_tricks.as_strided(dy, dy.shape, (dy.itemsize * dy.shape[1], dy.itemsize))
        dx[:, 1:] += windows
        dx[:, :-1] += windows
        return dx

    with pytest.raises(GradientError, match=r"gradcheck pairs: if dy (is|has) .*, dx changes"):
        in_layouts(pairs, vjp, x)


def test_mistakes_with_strides_of_zero_are_found(x: np.ndarray) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        scale = 0.0 if 0 in dy.strides else 1.0
        return scale * dy * np.cos(x)

    with pytest.raises(GradientError, match=r"dy comes from np\.broadcast_to, as after a sum, dx changes"):
        in_layouts(np.sin, vjp, x)

    def refuses(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        if 0 in dy.strides:
            raise ValueError("strides")
        return dy * np.cos(x)

    with pytest.raises(GradientError, match=r"np\.broadcast_to, as after a sum, the backward raises ValueError"):
        in_layouts(np.sin, refuses, x)


def test_the_backward_is_tested_if_the_forward_refuses_a_layout(x: np.ndarray) -> None:
    def strict(x: np.ndarray) -> np.ndarray:
        if not x.flags.c_contiguous:
            raise ValueError("x must be contiguous")
        return np.sin(x)

    in_layouts(strict, lambda dy, x: dy * np.cos(x), x)
    with pytest.raises(GradientError, match="if dy is in Fortran order, the backward raises ValueError: x must be"):
        in_layouts(strict, lambda dy, x: dy * np.cos(x) + 0 * strict(dy), x)


def test_negative_strides_may_be_refused_but_not_give_wrong_results(x: np.ndarray) -> None:
    def refuses(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        if any(stride < 0 for stride in (*dy.strides, *x.strides)):
            raise ValueError("negative strides are not supported")
        return dy * np.cos(x)

    in_layouts(np.sin, refuses, x)

    def mistakes(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return (dy[::-1] if dy.strides[0] < 0 else dy) * np.cos(x)

    with pytest.raises(GradientError, match="if dy has negative strides, dx changes"):
        in_layouts(np.sin, mistakes, x)


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
    "names", ["layout", {"linear", "layout"}, ["layout"], 3, None, [["linear"]], {"linear": False}, np.array(1)]
)
def test_a_wrong_name_of_a_check_is_one_line_with_all_names(names: Any) -> None:
    with pytest.raises(ValueError, match=r"robustness must be True, False, or hold names among (.*), got") as caught:
        gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (np.ones(3),), robustness=names)
    assert all(f" {name}," in str(caught.value) for name in CHECKS)
    assert "\n" not in str(caught.value)


def test_a_gradient_that_is_nan_elsewhere_is_not_compared_there() -> None:
    """The second forward uses the inputs in reverse order; there the mask of `skip` hides the wrong element."""
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return dy / (2 * np.sqrt(x))

    x = np.array([0.0, 1.0, 2.0, 3.0])
    assert gradcheck_vjp(np.sqrt, vjp, (x,), skip={"x": x == 0}).ok


@pytest.mark.parametrize("d", [3, 7, 9, 16, 17])
def test_an_output_of_pure_round_off_raises_no_alarm(d: int) -> None:
    """Rows of equal numbers: x - mean is a few last bits, and other bits if the sum has another order."""
    def total(x: np.ndarray) -> np.ndarray:
        return x.sum() - x.sum(0).sum()

    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = np.full((4, d), rng.standard_normal())
        inputs = {"x": x, "gamma": rng.standard_normal(d), "beta": np.zeros(d)}
        assert gradcheck(ops.layer_norm, ops.layer_norm_backward, inputs, seed=seed).ok
        z = rng.standard_normal((4, d))
        report = gradcheck_vjp(total, lambda dy, x: dy * 0 * x, (z,), seed=seed, reference="complex")
        assert report.notes == []

    def forgets_rows(x: np.ndarray) -> np.ndarray:
        return x - x.mean(-1, keepdims=True) * (1.0 if x.flags.c_contiguous else 0.999)

    with pytest.raises(GradientError, match="the result of the forward changes"):
        gradcheck_vjp(forgets_rows, lambda dy, x: dy - dy.mean(-1, keepdims=True), (x,))


def test_round_off_that_differs_from_run_to_run_raises_no_alarm(rng: np.random.Generator) -> None:
    """The gradient of b is zero in theory; a sum in another order in every run changes all of its digits."""
    def centred(x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return x + b - np.mean(x + b, -1, keepdims=True)

    def vjp(dy: np.ndarray, x: np.ndarray, b: np.ndarray) -> Any:
        dx = dy - np.mean(dy, -1, keepdims=True)
        return dx, dx[:, rng.permutation(dx.shape[1])].sum(-1, keepdims=True)

    assert gradcheck_vjp(centred, vjp, (rng.standard_normal((3, 50)), rng.standard_normal((3, 1)))).ok
