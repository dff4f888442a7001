"""The complex step judges to the last digits, and only where differences confirm it."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, Report, gradcheck_vjp


def wrong(f: Any, vjp: Any, *inputs: np.ndarray, **options: Any) -> Report:
    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(f, vjp, inputs, **options)
    assert failure.value.report is not None
    return failure.value.report


@pytest.mark.parametrize("error", [1e-7, 1e-10, 1e-12])
def test_errors_that_no_difference_resolves(error: float, rng: np.random.Generator) -> None:
    x = rng.uniform(0.5, 2.0, (3, 4))
    assert gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (x,)).error < 1e-14
    report = wrong(np.sin, lambda dy, x: dy * np.cos(x) * (1 + error), x)
    assert report.arguments["x"].witness == "complex step"
    assert report.arguments["x"].wrong.mean() > 0.5  # the smallest elements are not known to more digits


def test_what_is_not_analytic_is_judged_by_differences_and_said_so(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5))

    def f(x: np.ndarray) -> np.ndarray:
        return np.abs(x) * x

    report = gradcheck_vjp(f, lambda dy, x: 2 * dy * np.abs(x), (x,))
    assert report.arguments["x"].witness == "differences"
    assert "differences find another derivative" in str(report)
    # What a complex step would take for right: the imaginary part of |x| x, were |x| a constant.
    wrong(f, lambda dy, x: dy * np.abs(x), x)


def test_each_witness_can_be_asked_alone(rng: np.random.Generator) -> None:
    x = rng.standard_normal(5)
    right = {"f": np.tanh, "vjp": lambda dy, x: dy * (1 - np.tanh(x) ** 2), "inputs": (x,)}
    for witness, judge in (("both", "complex step"), ("complex", "complex step"), ("differences", "differences")):
        assert gradcheck_vjp(**right, witness=witness).arguments["x"].witness == judge
    with pytest.raises(GradientError, match="no complex step: TypeError"):
        gradcheck_vjp(np.floor, lambda dy, x: 0 * dy, (x,), witness="complex")
    with pytest.raises(ValueError, match="witness must be one of both, complex, differences, got 'neither'"):
        gradcheck_vjp(**right, witness="neither")


def test_an_argument_of_several_that_is_not_analytic_is_told_from_the_others(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal(4)
    report = gradcheck_vjp(
        lambda x, w: x * np.abs(w), lambda dy, x, w: (dy * np.abs(w), (dy * x).sum(0) * np.sign(w)), (x, w)
    )
    assert {name: one.witness for name, one in report.arguments.items()} == {"x": "complex step", "w": "differences"}


def test_the_step_is_confirmed_at_badly_scaled_inputs() -> None:
    x = np.array([1e-5, 3e-4, 0.02, 1.0])
    report = gradcheck_vjp(lambda x: 1 / x, lambda dy, x: -dy / x**2, (x,))
    assert report.arguments["x"].witness == "complex step"
    wrong(lambda x: 1 / x, lambda dy, x: -dy / x**2 * (1 + 1e-9), x)
