"""Every element is compared: small arrays one by one, large ones by directions; a corner is not an error.

The complex step finds errors in the last digits, and is used only if differences confirm it. One wrong element of
300,000 is found in a bounded number of calls.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, Report, gradcheck, gradcheck_vjp
from tests.gradcheck.planted import caught, times, with_mistake


def test_one_of_twelve_softmax_elements_off_by_one_percent(rng: np.random.Generator) -> None:
    for index in ((0, 0), (1, 2), (2, 3)):
        x = rng.standard_normal((3, 4))
        message, report = caught(ops.softmax, with_mistake(ops.softmax_backward, times(1.01, index)), {"x": x})
        assert report.arguments["x"].worst == index
        assert report.arguments["x"].wrong.sum() == 1
        assert "a single element" in message
        assert report.slope is None or report.slope < 1.5


def test_an_error_next_to_a_corner_is_found() -> None:
    """A relu that is zero is not a staircase of round-off, however close x is to the corner."""
    x = np.array([[-3e-4, 1.0]])
    gradcheck(ops.relu, ops.relu_backward, {"x": x})
    with pytest.raises(GradientError, match=r"dx\[0, 0\]"):
        gradcheck(ops.relu, lambda dy, cache: dy * np.array([[1e-3, 1.0]]), {"x": x})


def test_a_corner_is_reported_as_a_kink_and_not_as_an_error(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    x[1, 2] = 0.0
    report = gradcheck(ops.relu, ops.relu_backward, {"x": x})
    assert np.argwhere(report.arguments["x"].kinks).tolist() == [[1, 2]]
    assert "right; 1 of 12 elements not checked (at a corner); the others: worst" in str(report)


def test_the_end_of_a_domain_is_not_an_error() -> None:
    report = gradcheck(
        lambda x: (np.sqrt(x), x), lambda dy, x: dy / (2 * np.sqrt(np.maximum(x, 1e-300))),
        {"x": np.array([0.0, 1.0, 4.0])}
    )
    assert report.ok


def wrong(f: Any, vjp: Any, *inputs: np.ndarray, **options: Any) -> Report:
    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(f, vjp, inputs, **options)
    assert failure.value.report is not None
    return failure.value.report


@pytest.mark.parametrize("error", [1e-7, 1e-12])
def test_the_complex_step_finds_errors_that_differences_cannot(error: float, rng: np.random.Generator) -> None:
    x = rng.uniform(0.5, 2.0, (3, 4))
    assert gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (x,)).error < 1e-14
    report = wrong(np.sin, lambda dy, x: dy * np.cos(x) * (1 + error), x)
    assert report.arguments["x"].reference == "complex step"
    assert report.arguments["x"].wrong.mean() > 0.5  # the smallest elements are known to few digits


def test_functions_that_are_not_analytic_are_compared_with_differences(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5))

    def f(x: np.ndarray) -> np.ndarray:
        return np.abs(x) * x

    report = gradcheck_vjp(f, lambda dy, x: 2 * dy * np.abs(x), (x,))
    assert report.arguments["x"].reference == "differences"
    assert "differences find another derivative" in str(report)
    # The complex step would accept this: the imaginary part of |x| x for a constant |x|.
    wrong(f, lambda dy, x: dy * np.abs(x), x)


def test_each_reference_derivative_can_be_used_alone(rng: np.random.Generator) -> None:
    x = rng.standard_normal(5)
    right = {"f": np.tanh, "vjp": lambda dy, x: dy * (1 - np.tanh(x) ** 2), "inputs": (x,)}
    for reference, judge in (("both", "complex step"), ("complex", "complex step"), ("differences", "differences")):
        assert gradcheck_vjp(**right, reference=reference).arguments["x"].reference == judge
    with pytest.raises(GradientError, match="no complex step: TypeError"):
        gradcheck_vjp(np.floor, lambda dy, x: 0 * dy, (x,), reference="complex")
    with pytest.raises(ValueError, match="reference must be one of both, complex, differences, got 'neither'"):
        gradcheck_vjp(**right, reference="neither")


def test_one_element_of_many_off_by_one_percent(rng: np.random.Generator) -> None:
    def cube(x: np.ndarray) -> Any:
        return x * x * x, x

    def cube_backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = 3 * x * x * dy
        dx[217, 903] *= 1.01
        return dx

    x = rng.standard_normal((300, 1000))
    x[217, 903] = 0.7
    message, report = caught(cube, cube_backward, {"x": x})
    assert report.arguments["x"].worst == (217, 903)
    assert report.arguments["x"].wrong.sum() == 1
    assert report.calls <= 600
    assert "dx[217, 903]" in message
    assert "ratio 1.01" in message


def test_a_large_array_is_checked_in_few_calls(rng: np.random.Generator) -> None:
    report = gradcheck(ops.silu, ops.silu_backward, {"x": rng.standard_normal((200, 300))})
    assert report.calls <= 60
    assert "random directions" in str(report)
    assert report.error < 1e-9


def test_a_smooth_point_is_not_called_a_corner() -> None:
    """relu(x) - relu(-x) is x: conventions at the two corners give a wrong derivative."""
    with pytest.raises(GradientError):
        gradcheck_vjp(
            lambda x: np.maximum(x, 0) - np.maximum(-x, 0), lambda dy, x: dy * (x != 0), (np.array([0.0, 1.0, -1.0]),)
        )
