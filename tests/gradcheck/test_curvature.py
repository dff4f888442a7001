"""The complex step of a backward is the Hessian times a direction."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_vjp, hvp, hvp_layer, hvp_vjp
from numpy_attention.gradcheck.curvature import hessian_times
from numpy_attention.gradcheck.derivative import NoComplexStep
from numpy_attention.gradcheck.problem import Problem, random_cotangent
from numpy_attention.models import GPT, GPTConfig
from numpy_attention.tutor.catalogue import CATALOGUE

Arrays = dict[str, np.ndarray]

# Differences fail for these: weights of 1 - 1e-100, and a slope that jumps.
SATURATED = {"softmax: scores of 500", "cross_entropy: logits of 1e4"}
CORNER = {"relu: on the corner"}


def tiny_gpt(rng: np.random.Generator, dtype: Any = np.float64) -> tuple[GPT, dict[str, np.ndarray]]:
    config = GPTConfig(vocab_size=5, context_length=4, d_model=4, num_heads=2, num_layers=1, d_ff=3)
    return GPT(config, rng, dtype), {"ids": rng.integers(0, 5, (2, 3)), "targets": rng.integers(0, 5, (2, 3))}


def a_direction(problem: Problem, dy: Any, rng: np.random.Generator) -> Arrays:
    known = [name for name, grad in problem.gradients(problem.inputs, dy).items() if grad is not None]
    return {name: rng.standard_normal(problem.inputs[name].shape) for name in known}


def by_differences(problem: Problem, v: Arrays, dy: Any, h: float) -> Arrays:
    """H v by Richardson's differences of the backward."""

    def at(t: float) -> Any:
        moved = {name: x + t * v[name] if name in v else x for name, x in problem.inputs.items()}
        return problem.gradients(moved, dy)

    def central(h: float) -> Arrays:
        there, back = at(h), at(-h)
        return {name: (there[name] - back[name]) / (2 * h) for name in v}

    wide, narrow = central(h), central(h / 2)
    return {name: (4 * narrow[name] - wide[name]) / 3 for name in v}


OF_EACH_KIND = {CATALOGUE[name].covers: name for name in sorted(set(CATALOGUE) - SATURATED - CORNER)}


@pytest.mark.parametrize("name", OF_EACH_KIND.values())
def test_hvp_agrees_with_differences_of_the_backward(name: str, rng: np.random.Generator) -> None:
    problem = CATALOGUE[name].case(1).problem()
    y, _ = problem.run(problem.inputs)
    dy = random_cotangent(y, 1)
    v = a_direction(problem, dy, rng)
    exact = hessian_times(problem, v, dy)
    assert exact.keys() == v.keys()
    size = max(float(np.abs(one).max(initial=0.0)) for one in exact.values())
    natural = max(float(np.abs(a * b).max(initial=0.0)) for a, b in zip(dy, y))
    found = [by_differences(problem, v, dy, h) for h in (1e-3, 1e-4, 1e-5, 1e-6)]
    off = [max(float(np.abs(one[name] - exact[name]).max(initial=0.0)) for name in v) for one in found]
    assert min(off) <= 1e-7 * size + 1e-9 * natural


def test_hvp_of_unit_vectors_gives_the_hessian(rng: np.random.Generator) -> None:
    A = rng.standard_normal((4, 4))
    x = rng.standard_normal(4)

    def f(x: np.ndarray) -> Any:
        return np.exp(x @ A @ x / 10)

    def vjp(dy: Any, x: np.ndarray) -> Any:
        return dy * f(x) * (A + A.T) @ x / 10

    H = np.array([hvp_vjp(f, vjp, (x,), (e,))["x"] for e in np.eye(4)])
    g = (A + A.T) @ x / 10
    np.testing.assert_allclose(H, f(x) * (np.outer(g, g) + (A + A.T) / 10), rtol=1e-13)


def test_hvp_of_an_op_takes_options_and_dy(rng: np.random.Generator) -> None:
    x, v, dy = rng.standard_normal((3, 2, 5))
    moved = hvp(ops.softmax, ops.softmax_backward, {"x": x}, {"x": v}, dy=dy, axis=0)["x"]
    again = hvp(ops.softmax, ops.softmax_backward, (x,), (v,), dy=dy, options={"axis": 0})["x"]
    y = ops.softmax(x, axis=0)[0]
    dy_moved = y * (v - (y * v).sum(axis=0))  # of y itself: J v
    average = (dy * y).sum(axis=0)
    expected = dy_moved * (dy - average) - y * (dy * dy_moved).sum(axis=0)
    np.testing.assert_allclose(moved, expected, atol=1e-14)
    assert np.array_equal(moved, again)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hvp_does_not_change_a_model_and_returns_float64(dtype: Any, rng: np.random.Generator) -> None:
    model, batch = tiny_gpt(rng, dtype)
    before = {name: p.copy() for name, p in model.parameters().items()}
    v = {"head.b": np.ones(5)} if "head.b" in before else {"blocks.0.feed_forward.w_1": np.ones((4, 3))}
    moved = hvp_layer(model, batch, v)
    assert moved.keys() == before.keys()
    assert {one.dtype for one in moved.values()} == {np.dtype(np.float64)}
    assert any(np.any(one) for one in moved.values())
    assert all(np.array_equal(p, before[name]) and p.dtype == dtype for name, p in model.parameters().items())


def test_a_direction_that_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    model, batch = tiny_gpt(rng)
    with pytest.raises(ValueError, match=r"gradcheck GPT: the names in v must be among .*, got 'head.z'"):
        hvp_layer(model, batch, {"head.z": np.ones(3)})
    name, p = next(iter(model.parameters().items()))
    message = r"gradcheck GPT: v\[.*\] must be floats of shape \(5, 4\), the shape of .*, got float64 of shape \(4,\)"
    with pytest.raises(ValueError, match=message):
        hvp_layer(model, batch, {name: p[0]})


def test_an_output_of_several_numbers_needs_a_dy(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3))
    with pytest.raises(ValueError, match=r"hvp softmax: dy must be given for an output of shape \(2, 3\), got None"):
        hvp(ops.softmax, ops.softmax_backward, (x,), (x,))
    with pytest.raises(ValueError, match=r"dy must be of the shape of the output, \[\(2, 3\)\], got \[\(3,\)\]"):
        hvp(ops.softmax, ops.softmax_backward, (x,), (x,), dy=np.ones(3))


def test_functions_without_complex_arrays_are_refused(rng: np.random.Generator) -> None:
    x = rng.standard_normal(3)

    def f(x: np.ndarray) -> Any:
        return (x * np.floor(x)).sum()

    with pytest.raises(NoComplexStep, match="hvp f: it rejects complex arrays: ufunc 'floor'"):
        hvp_vjp(f, lambda dy, x: dy * np.floor(x), (x,), (x,))
    with pytest.raises(NoComplexStep, match="it rejects complex arrays: Casting complex values to real"):
        hvp_vjp(lambda x: (x * x).sum(), lambda dy, x: (2 * dy * x).astype(np.float64), (x,), (x,))
    with pytest.raises(NoComplexStep, match="dx is real"):
        hvp_vjp(lambda x: (x * x).sum(), lambda dy, x: 2 * x.real, (x,), (x,))
    with pytest.raises(NoComplexStep, match="its arrays are complex already"):
        hvp_vjp(lambda x, w: (x * w).real.sum(), lambda dy, x, w: (dy * w.real, dy * x), (x, 1j * x), (x,))


def cube_vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * 3 * x * x


def test_a_double_backward_is_checked_as_a_function_of_dy_and_x(rng: np.random.Generator) -> None:
    dy, x = rng.standard_normal((2, 3, 4))
    inputs = {"dy": dy, "x": x}
    assert gradcheck_vjp(cube_vjp, lambda u, dy, x: (3 * u * x * x, 6 * u * dy * x), inputs).ok
    with pytest.raises(GradientError, match="dx: half of what it should be"):
        gradcheck_vjp(cube_vjp, lambda u, dy, x: (3 * u * x * x, 3 * u * dy * x), inputs)

    def backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return ops.silu_backward(dy, ops.silu(x)[1])

    def double(u: np.ndarray, dy: np.ndarray, x: np.ndarray) -> Any:
        return ops.silu_backward(u, ops.silu(x)[1]), hvp(ops.silu, ops.silu_backward, (x,), (u,), dy=dy)["x"]

    assert gradcheck_vjp(backward, double, inputs).ok
