"""Complex steps give derivatives to the last digits; an impossible complex step gives a reason."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck.derivative import Exact, NoComplexStep, complex_numbers
from numpy_attention.gradcheck.problem import FunctionProblem


def step_of(f: Any, **arrays: np.ndarray) -> Exact:
    problem = FunctionProblem(f, f, arrays, {})
    y = np.asarray(f(**arrays))
    dy = np.random.default_rng(1).standard_normal(y.shape)
    return Exact(problem, arrays, (y,), (dy,))


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
