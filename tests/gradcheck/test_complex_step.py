"""Complex steps give derivatives to the last digits; an impossible complex step gives a reason."""

import contextlib
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck.check import check, gradcheck
from numpy_attention.gradcheck.complex_step import ComplexStep, NoComplexStep, complex_numbers
from numpy_attention.gradcheck.problem import FunctionProblem
from numpy_attention.gradcheck.report import GradientError


def step_of(f: Any, **arrays: np.ndarray) -> ComplexStep:
    problem = FunctionProblem(f, f, arrays, {})
    y = np.asarray(f(**arrays))
    dy = np.random.default_rng(1).standard_normal(y.shape)
    return ComplexStep(problem, arrays, (y,), (dy,))


def test_one_element_and_a_direction_through_all_arrays(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    step = step_of(lambda x, w: np.tanh(x @ w), x=x, w=w)
    slope = step.dy[0] * (1 - np.tanh(x @ w) ** 2)
    dx, dw = slope @ w.T, x.T @ slope
    value, terms = step.along("x", slice(5, 6), np.ones(1))
    assert value == pytest.approx(dx[1, 1], rel=1e-14)
    assert terms >= abs(value)
    v, u = rng.standard_normal(x.shape), rng.standard_normal(w.shape)
    expected = float((dx * v).sum() + (dw * u).sum())
    assert step.through({"x": v, "w": u})[0] == pytest.approx(expected, rel=1e-13)
    assert step.calls == 2
    assert not any(array.imag.any() for array in step.arrays.values())


@pytest.mark.parametrize("power", [-90, -30, 30, 90])
def test_the_size_of_the_complex_step_does_not_matter(power: int) -> None:
    x = np.array([3.0 * 10.0**power])
    step = step_of(lambda x: np.sqrt(1 * x), x=x)
    expected = float(step.dy[0][0] / (2 * np.sqrt(x[0])))
    assert step.along("x", slice(0, 1), np.ones(1))[0] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("f", "text"), [
    (lambda x: np.floor(2 * x), "TypeError"),
    (lambda x: x.astype(np.float32), "ComplexWarning"),
    (lambda x: np.sqrt(x) if np.isrealobj(x) else np.sqrt(x) + 1, "a different result"),
    (lambda x: x if np.isrealobj(x) else x + 0.5j, "returns complex numbers for real inputs"),
    (lambda x: x[:2] if np.isrealobj(x) else x, "a different result"),
], ids=["floor", "cast", "branch", "imaginary", "shape"])
def test_an_impossible_complex_step_gives_a_reason(f: Any, text: str) -> None:
    with pytest.raises(NoComplexStep, match=text):
        step_of(f, x=np.array([1.0, 2.0, 3.0]))


def test_ops_take_complex_numbers_only_inside_the_context(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3)) + 0j
    with pytest.raises(TypeError, match="array of floats"):
        na.softmax(x)
    with complex_numbers():
        y, _ = na.softmax(x)
    assert np.allclose(y, na.softmax(x.real)[0])
    with pytest.raises(TypeError, match="array of floats"):
        na.softmax(x)


def test_a_function_that_fails_for_a_complex_step_is_compared_with_differences(rng: np.random.Generator) -> None:
    def f(x: np.ndarray) -> np.ndarray:
        if x.imag.any():
            raise RuntimeError("only real numbers, please")
        return np.sin(x)

    x = rng.standard_normal((2, 3))
    report = na.gradcheck.gradcheck_vjp(f, lambda dy, x: dy * np.cos(x), (x,))
    assert report.arguments["x"].reference == "differences"
    assert "only real numbers" in report.why_not
    with pytest.raises(RuntimeError, match="only real numbers"):
        na.gradcheck.gradcheck_vjp(f, lambda dy, x: dy * np.cos(x), (x,), reference="complex")


@pytest.mark.parametrize("size", [6, 2000])
def test_errors_of_the_function_are_passed_on(size: int) -> None:
    for last in range(1, 24):
        left = [last]

        def sometimes(x: np.ndarray, left: list[int] = left) -> np.ndarray:
            left[0] -= 1
            if not left[0]:
                raise RuntimeError("now and then")
            return np.sin(x)

        with contextlib.suppress(RuntimeError):
            problem = FunctionProblem(sometimes, lambda dy, x: dy * np.cos(x), (np.linspace(0.1, 1.0, size),), {})
            assert check(problem, structure=False).ok


@pytest.mark.parametrize("power", range(-8, 4))
def test_round_off_is_measured_even_if_the_gradient_is_zero(power: int) -> None:
    """The mean of one number does not depend on its weight; the complex step finds the round-off of a division."""
    rng = np.random.default_rng(power + 8)

    def mean(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        return x * w / w, (x, w)

    def zero(dy: np.ndarray, cache: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return dy, np.zeros_like(dy)

    def nearly_zero(dy: np.ndarray, cache: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        x, w = cache
        return dy, 1e-9 * dy * x / w

    inputs = {"x": rng.standard_normal(1), "w": 10.0**power * rng.uniform(0.5, 2.0, 1)}
    gradcheck(mean, zero, inputs, seed=power + 8)
    with pytest.raises(GradientError, match="dw wrong"):
        gradcheck(mean, nearly_zero, inputs, seed=power + 8)
