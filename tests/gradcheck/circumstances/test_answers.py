"""Two answers of one backward are the same up to its round-off, and no further."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.circumstances.answers import Asked, root_of_eps
from numpy_attention.gradcheck.numbers.claims import ask_backward
from numpy_attention.gradcheck.problems.problem import problem_of_op


def asked_of(op: Any, op_backward: Any, *arrays: np.ndarray, rtol: float = 0.0, atol: float = 0.0) -> Asked:
    problem = problem_of_op(op, op_backward, arrays, {})
    return Asked(problem, problem.run(problem.inputs)[0], *ask_backward(problem, 0), 0, rtol, atol)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sum_in_another_order_is_the_same_and_a_lost_element_is_not(dtype: type, rng: np.random.Generator) -> None:
    asked = asked_of(ops.silu, ops.silu_backward, rng.standard_normal((5, 7)).astype(dtype))
    grad = asked.grads["x"]
    assert grad is not None
    few = (grad * (1 + 10 * np.finfo(dtype).eps)).astype(dtype)
    assert asked.differing({"x": few}, asked.grads) is None
    lost = grad.copy()
    lost[2, 3] = 0
    assert asked.differing({"x": lost}, asked.grads) == "x"
    lost[2, 3] = np.nan
    assert asked.differing({"x": lost}, asked.grads) == "x"
    assert asked.differing({"x": grad[0]}, asked.grads) == "x"
    assert asked.differing({}, asked.grads) == "x"
    assert asked.differing({}, {"x": None}) is None


def test_a_gradient_that_is_all_round_off_may_move_by_more_than_itself(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray, b: np.ndarray) -> Any:
        return x + b - np.mean(x + b, -1, keepdims=True), None

    def centred_backward(dy: np.ndarray, cache: Any) -> Any:
        dx = dy - np.mean(dy, -1, keepdims=True)
        return dx, dx.sum(-1, keepdims=True)

    asked = asked_of(centred, centred_backward, rng.standard_normal((3, 50)), rng.standard_normal((3, 1)))
    dust = np.asarray(asked.grads["b"])
    assert 0 < np.abs(dust).max() < 1e-13
    assert asked.differing({"b": -3 * dust}, {"b": dust}) is None
    assert asked.differing({"b": dust + 1e-9}, {"b": dust}) == "b"


def test_stated_tolerances_count(rng: np.random.Generator) -> None:
    x = rng.standard_normal(6)
    grad = np.asarray(asked_of(ops.silu, ops.silu_backward, x).grads["x"])
    for tolerance, other in (({"rtol": 0.02}, 1.01 * grad), ({"atol": 0.02}, grad + 0.01)):
        assert asked_of(ops.silu, ops.silu_backward, x).differing({"x": other}, {"x": grad}) == "x"
        assert asked_of(ops.silu, ops.silu_backward, x, **tolerance).differing({"x": other}, {"x": grad}) is None


def test_errors_are_relative_to_another_size_where_terms_cancel(rng: np.random.Generator) -> None:
    asked = asked_of(ops.silu, ops.silu_backward, rng.standard_normal(6))
    small, size = {"x": np.full(6, 1e-8)}, {"x": np.full(6, 10.0)}
    assert asked.differing({"x": np.full(6, 2e-8)}, small) == "x"
    assert asked.differing({"x": np.full(6, 2e-8)}, small, size) is None


def test_the_root_of_the_last_bit() -> None:
    assert root_of_eps(np.ones(1, np.float32)) == pytest.approx(3.45e-4, rel=1e-2)
    assert root_of_eps(np.ones(1, np.int64)) == 0.0


@pytest.mark.parametrize("none", [None, "text", np.zeros(3), np.zeros((2, 3), int)], ids=repr)
def test_a_backward_that_gives_something_else_where_dy_is_zero(none: Any) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> Any:
        return 2 * x * dy if dy.any() else none

    with pytest.raises(GradientError, match="with another dy the backward returns no dx of floats in the shape of x"):
        gradcheck_vjp(lambda x: x * x, vjp, {"x": np.arange(6.0).reshape(2, 3)})
