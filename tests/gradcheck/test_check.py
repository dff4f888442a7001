"""The whole checker: its arguments, its reports, and no false alarms."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import OpProblem


def test_the_package_is_the_function_and_holds_the_parts() -> None:
    import numpy_attention.gradcheck.strategies

    x = np.random.default_rng(0).standard_normal((2, 3))
    assert na.gradcheck(na.softmax, na.softmax_backward, {"x": x}).ok
    assert na.gradcheck.strategies is numpy_attention.gradcheck.strategies
    assert issubclass(na.gradcheck.GradientError, AssertionError)


def test_a_sample_compares_so_many_elements_and_finds_mistakes(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, dw, db = ops.linear_backward(dy, cache)
        dw[1, 2] *= 1.001
        return dx, dw, db

    inputs = {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal((4, 5))}
    right = OpProblem(ops.linear, ops.linear_backward, inputs, {})
    wrong = OpProblem(ops.linear, backward, inputs, {})
    found = 0
    for seed in range(20):
        report = check(right, seed, sample=8)
        assert sum(int(np.isfinite(one.numeric).sum()) for one in report.arguments.values()) == 8
        assert report.calls < 8 * 5
        assert report.error < 1e-8
        try:
            check(wrong, seed, sample=8)
        except GradientError as error:
            alarm = error.report
            found += alarm is not None and alarm.arguments["w"].worst == (1, 2)
    assert 0 < found < 20  # one of four is expected: 8 of 32 elements


def test_a_wrong_vjp_is_found(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    gradcheck_vjp(lambda x, w: x @ w, lambda dy, x, w: (dy @ w.T, x.T @ dy), (x, w))
    with pytest.raises(GradientError, match="dw: the sign is wrong"):
        gradcheck_vjp(lambda x, w: x @ w, lambda dy, x, w: (dy @ w.T, -x.T @ dy), (x, w))


def test_badly_scaled_inputs_raise_no_alarm() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, gamma, beta = rng.standard_normal((3, 5)), rng.standard_normal(5), rng.standard_normal(5)
        small, constant = x.copy(), x.copy()
        small[1] *= 1e-6
        constant[1] = 0.7
        assert na.gradcheck(ops.rms_norm, ops.rms_norm_backward, {"x": small, "gamma": gamma}, seed=seed).ok
        inputs = {"x": constant, "gamma": gamma, "beta": beta}
        assert na.gradcheck(ops.layer_norm, ops.layer_norm_backward, inputs, seed=seed, options={"eps": 1e-12}).ok


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_linear_solves_are_judged_correctly(condition: float) -> None:
    def vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
        db = np.linalg.solve(a.T, dy)
        return -db @ np.linalg.solve(a, b).T, db

    for seed in range(4):
        rng = np.random.default_rng(seed)
        left, right = (np.linalg.qr(rng.standard_normal((5, 5)))[0] for _ in range(2))
        a, b = left * np.geomspace(1, 1 / condition, 5) @ right, rng.standard_normal((5, 2))
        assert gradcheck_vjp(np.linalg.solve, vjp, (a, b), seed=seed).ok
        with pytest.raises(GradientError, match="da"):
            gradcheck_vjp(np.linalg.solve, lambda dy, a, b: (1.001 * vjp(dy, a, b)[0], vjp(dy, a, b)[1]), (a, b))


def test_a_forward_may_raise_outside_its_domain() -> None:
    def logarithm(x: np.ndarray) -> np.ndarray:
        assert (x > 0).all(), "positive"
        return np.log(x)

    def of_a_simplex(x: np.ndarray) -> np.ndarray:
        if abs(x.sum() - 1) > 1e-9:
            raise ValueError("no simplex")
        return np.log(x)

    given = ((logarithm, np.array([1e-12, 1e-3, 1.0, 1e3])), (of_a_simplex, np.array([0.2, 0.3, 0.5])))
    for f, x in given:
        assert gradcheck_vjp(f, lambda dy, x: dy / x, (x,)).ok
        with pytest.raises(GradientError, match=r"dx\["):
            gradcheck_vjp(f, lambda dy, x: 1.001 * dy / x, (x,))


def test_an_iteration_that_stops_at_a_tolerance_is_allowed_for() -> None:
    def root(a: np.ndarray) -> np.ndarray:
        x = np.ones_like(a)
        while np.max(np.abs(np.real(x * x - a))) > 1e-6:
            x = (x + a / x) / 2 if np.max(np.abs(np.real(x * x - a))) > 1e-1 else x - (x * x - a) / (2.1 * x)
        return x

    def vjp(dy: np.ndarray, a: np.ndarray) -> np.ndarray:
        return dy / (2 * np.sqrt(a))

    a = np.array([0.7, 2.0, 5.0])
    with pytest.raises(GradientError, match="stops an iteration at a tolerance, allow this error: rtol="):
        gradcheck_vjp(root, vjp, (a,))
    assert gradcheck_vjp(root, vjp, (a,), rtol=1e-4).ok
    with pytest.raises(GradientError):
        gradcheck_vjp(root, lambda dy, a: 1.01 * vjp(dy, a), (a,), rtol=1e-4)


def test_noise_is_allowed_for_relative_to_the_gradient_or_absolutely() -> None:
    """Noise that is equal in every call: the derivative is known to 1 %."""
    def noisy(x: np.ndarray) -> np.ndarray:
        return np.sin(x) + 1e-4 * np.modf(np.abs(np.real(x)) * 1e7)[0]

    x = np.linspace(1.0, 2.0, 5)
    for allowed in ({}, {"rtol": 1e-3}, {"atol": 1e-3}):
        with pytest.raises(GradientError, match="dx not resolved"):
            gradcheck_vjp(noisy, lambda dy, x: dy * np.cos(x), (x,), **allowed)
    for allowed in ({"rtol": 0.1}, {"atol": 0.1}):
        assert gradcheck_vjp(noisy, lambda dy, x: dy * np.cos(x), (x,), **allowed).ok


@pytest.mark.parametrize("seed", [{}, {"seed": 0}, {"seed": 5}])
def test_unless_a_seed_is_given_it_is_zero(seed: dict[str, int]) -> None:
    x, layer = np.ones((2, 3)), na.LayerNorm(3, dtype=np.float64)
    problem = OpProblem(ops.silu, ops.silu_backward, (x,), {})
    for report in (
        na.gradcheck(ops.silu, ops.silu_backward, (x,), **seed), na.gradcheck.gradcheck_layer(layer, (x,), **seed),
        gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (x,), **seed), check(problem, **seed),
    ):
        assert report.seed == seed.get("seed", 0)


def test_noise_between_two_calls_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(GradientError, match="two calls with the same arrays return different results"):
        gradcheck_vjp(lambda x: x + 0.1 * rng.standard_normal(3), lambda dy, x: 0 * dy, (np.arange(3.0),))


@pytest.mark.parametrize(("vjp", "text"), [
    (lambda dy, x: None, r"no gradient for the argument x; if x has no gradient, pass no_gradient=\['x'\]"),
    (lambda dy, x: {"dx": dy}, "a gradient called 'dx'; the names must be names of arguments: x"),
    (lambda dy, x: {}, "no gradient for the argument x"),
    (lambda dy, x: dy * (1 + 1j), "dx is complex, but x is real"),
], ids=["none", "name", "missing", "complex"])
def test_missing_gradients_are_refused(vjp: Any, text: str) -> None:
    with pytest.raises(GradientError, match=text):
        gradcheck_vjp(lambda x: x * 1.0, vjp, (np.arange(3.0),))


def counted(op: Any, op_backward: Any, x: np.ndarray, **options: Any) -> tuple[int, int]:
    """The number of calls of the op, counted and according to the report."""
    calls = 0

    def counting(x: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        return op(x)

    report = check(OpProblem(counting, op_backward, {"x": x}, {}), structure=False, **options)
    return calls, report.calls


def uncounted(op: str, width: int, exhaustive: int, reference: str) -> int:
    """The number of calls that the report does not count: for the backward and its round-off."""
    x = np.random.default_rng(width).standard_normal((3, width))
    x = np.round(x) if op == "relu" else x  # zeros: corners, and ties
    forward, backward = getattr(ops, op), getattr(ops, f"{op}_backward")
    calls, reported = counted(forward, backward, x, exhaustive=exhaustive, reference=reference)
    assert 0 < reported < calls
    return calls - reported


@pytest.mark.parametrize("reference", ["complex", "differences", "both"])
def test_all_calls_for_derivatives_are_counted(reference: str) -> None:
    """By elements or by directions, for small and large arrays: the number of uncounted calls is constant."""
    softmax = {uncounted("softmax", width, exhaustive, reference) for width in (2, 7) for exhaustive in (1, 1000)}
    assert len(softmax) == 1
    if reference != "complex":  # the complex step finds no corner
        assert {uncounted("relu", width, 1, reference) for width in (2, 7)} == softmax
        assert len({uncounted("relu", width, 1000, reference) for width in (2, 7)}) == 1
