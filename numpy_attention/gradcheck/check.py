"""The whole check: run the backward, compare each gradient with two reference derivatives, and report.

    |analytic gradient - derivative|  <=  8 (error of the derivative + round-off of the gradient) + floor

for every element, so you need not choose a tolerance (see `tolerance`). Complex steps give the derivative to the last
digits. If differences do not confirm the complex step, because the function is not analytic or cannot take complex
numbers, the check uses differences. A gradient in float32 may have the round-off of float32. If ten digits of the
derivative are known, ten digits must agree. If fewer than four digits are known, the gradient is not called right.

The steps of `check`:

    run_backward         `tolerance`       run both functions at a random dy; refuse wrong shapes, NaN, changed inputs
    measure_round_off    `tolerance`       how much round-off a right gradient may have
    _compare             `complex_step`    compare each gradient with complex steps, or with differences (`elements`)
    check_structure      `robustness`      run both functions again, with other layouts, call orders and sizes
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numpy_attention.gradcheck.complex_step import check_exactly, complex_steps
from numpy_attention.gradcheck.diagnosis import diagnose
from numpy_attention.gradcheck.elements import at_corners, check_directions, check_elements, check_ties
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import measure_stairs, sizes, taylor_slope
from numpy_attention.gradcheck.problem import (
    FunctionProblem,
    Inputs,
    LayerProblem,
    OpProblem,
    Options,
    Problem,
    checked,
    forward_of,
    parameters_of,
    split_options,
)
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report
from numpy_attention.gradcheck.robustness import check_structure
from numpy_attention.gradcheck.tolerance import (
    AnalyticGradient,
    Point,
    compare_with_float64,
    mark_unresolved,
    measure_round_off,
    run_backward,
)

EXHAUSTIVE = 1500  # arrays of up to this size are checked element by element
MOST_CALLS = 1000  # calls for each larger array


def gradcheck(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *, seed: int = 0, reference: str = "both",
    no_gradient: Sequence[str] = (), rtol: float = 0.0, atol: float = 0.0, options: Options | None = None, **more: Any,
) -> Report:
    """Compare `op_backward` with the derivative of `op` in float64; raise GradientError with a report, or return it.

    Formula: dL/dx = J^T dy for L = sum(dy * y), with a random dy drawn from `seed`

    `inputs`: a dict by argument name, or a tuple in argument order. Integer and boolean arrays are passed on but not
    differentiated. Other keywords are options of `op`. If an option of `op` has the same name as an option of the
    check, pass it in `options`. A `Generator` in the options is copied for every call, so dropout stays fixed.

    `reference`: "complex" steps, "differences", or "both". `no_gradient`: arguments that have no gradient (None).
    `rtol`, `atol`: an extra error that is allowed, relative to the largest element of a gradient, and absolute; useful
    for an `op` that stops an iteration at a tolerance.

    Raises: GradientError, an AssertionError whose message is the report, when a gradient is wrong; TypeError or
    ValueError for inputs and options that cannot be used; any error of `op`.

    Source: Ridders, Accurate Computation of F'(x) and F'(x)F''(x) (1982); Squire, Trapp, Using Complex Variables to
    Estimate Derivatives of Real Functions (1998).

    >>> def square(x): return x * x, x
    >>> def square_backward(dy, x): return 2 * x * dy
    >>> gradcheck(square, square_backward, {"x": np.array([[1.0, -2.0]])}).ok
    True
    """
    reference = _reference(op, reference, more)
    own = {"seed": seed, "reference": reference, "no_gradient": no_gradient, "rtol": rtol, "atol": atol}
    problem = OpProblem(op, op_backward, inputs, split_options(op, options, more, own), no_gradient)
    return check(problem, seed, reference=reference, rtol=rtol, atol=atol)


def gradcheck_vjp(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *, seed: int = 0, reference: str = "both",
    no_gradient: Sequence[str] = (), rtol: float = 0.0, atol: float = 0.0, options: Options | None = None, **more: Any,
) -> Report:
    """Check a plain function `y = f(x, ...)` and its vector-Jacobian product `dx, ... = vjp(dy, x, ...)`.

    Formula: vjp(dy, x) = J^T dy

    Raises: GradientError, when a gradient is wrong; any error of `f`.

    >>> gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), {"x": np.array([0.3, 2.0])}).ok
    True
    """
    reference = _reference(f, reference, more)
    own = {"seed": seed, "reference": reference, "no_gradient": no_gradient, "rtol": rtol, "atol": atol}
    problem = FunctionProblem(f, vjp, inputs, split_options(f, options, more, own), no_gradient)
    return check(problem, seed, reference=reference, rtol=rtol, atol=atol)


def gradcheck_layer(
    layer: Any, inputs: Inputs, *, seed: int = 0, reference: str = "both", no_gradient: Sequence[str] = (),
    rtol: float = 0.0, atol: float = 0.0, options: Options | None = None, **more: Any,
) -> Report:
    """Check a layer (`forward`) or a model (`loss`): every input, every parameter. The layer does not change.

    Formula: dL/dx and dL/dp = J^T dy, for every input x that has a gradient and every parameter p

    Raises: GradientError, when a gradient is wrong; any error of the layer.
    """
    reference = _reference(forward_of(layer), reference, more)
    own = {"seed": seed, "reference": reference, "no_gradient": no_gradient, "rtol": rtol, "atol": atol}
    problem = LayerProblem(layer, inputs, split_options(forward_of(layer), options, more, own), no_gradient)
    return check(problem, seed, reference=reference, rtol=rtol, atol=atol)


gradcheck_model = gradcheck_layer


def _reference(f: Callable[..., Any], reference: str, more: dict[str, Any]) -> Any:
    """The option `reference`, or its old name `witness` if f has no option of that name."""
    if "witness" not in more or "witness" in parameters_of(f):
        return reference
    warnings.warn("gradcheck: the keyword witness is now called reference", DeprecationWarning, stacklevel=3)
    return more.pop("witness")


def check(
    problem: Problem, seed: int = 0, exhaustive: int = EXHAUSTIVE, most_calls: int = MOST_CALLS,
    sample: int | None = None, reference: str = "both", rtol: float = 0.0, atol: float = 0.0, structure: bool = True,
) -> Report:
    """Check a problem: the shapes and dtypes of the gradients, their values and, with `structure`, their robustness.

    Arrays of up to `exhaustive` elements are compared element by element, larger ones by random directions and
    bisection in at most about `most_calls` calls. With `sample`, only this many elements of all arrays together are
    compared, drawn from `seed`; this makes thousands of checks affordable.

    Raises: GradientError, when a gradient is wrong or cannot be resolved
    """
    seed, rtol, atol = checked(problem.name, seed, reference, rtol, atol)
    dy, grads = run_backward(problem, seed)
    point, gradients, in_low_precision = measure_round_off(problem, dy, grads, rtol, atol)
    rng, chosen = np.random.default_rng([seed, 11]), _sample(gradients, sample, seed)
    reports, calls, why_not = _compare(point, gradients, rng, reference, exhaustive, most_calls, chosen)
    if any(report.kinks.any() for report in reports.values()):
        calls += check_ties(point, reports)
    for analytic in in_low_precision:
        compare_with_float64(reports[analytic.name], analytic)
    mark_unresolved(point.scalar, gradients, reports, rtol, atol)

    calls += sum(report.calls for report in reports.values())
    result = Report(problem.name, reports, seed, calls, why_not=why_not)
    if result.wrong:
        evidence = Evidence(problem, point.exact, point.scalar, result)
        # An error in the diagnosis must not stop the report: a function may raise at other inputs.
        with np.errstate(all="ignore"):
            with contextlib.suppress(Exception):
                result.slope = _second_opinion(evidence, rng)
            with contextlib.suppress(Exception):
                result.diagnosis = diagnose(evidence)
    if not result.ok:
        raise GradientError(str(result), result)
    if structure:  # last: a report of wrong values is more helpful than a failed check of robustness
        result.notes = check_structure(problem, dy, grads, seed, rtol, atol)
    return result


def _compare(
    point: Point, gradients: list[AnalyticGradient], rng: np.random.Generator, reference: str, exhaustive: int,
    most_calls: int, chosen: dict[str, np.ndarray],
) -> tuple[dict[str, ArgumentReport], int, str]:
    """Compare each gradient with its derivative; return reports, calls, and the reason if no complex step was used."""
    names = [analytic.name for analytic in gradients]
    arrays = [point.exact[name] for name in names]
    measure_stairs(point.scalar.through(arrays, [sizes(x) * rng.choice([-1.0, 1.0], x.shape) for x in arrays]))
    large = {analytic.name: analytic for analytic in gradients if analytic.gradient.size > exhaustive}
    smooth = {name: ~at_corners(point.exact[name], analytic) for name, analytic in large.items()}
    steps, why_not, calls = complex_steps(point, names, reference, rng, chosen | smooth)
    reports: dict[str, ArgumentReport] = {}
    for analytic in gradients:
        some, step = chosen[analytic.name], steps.get(analytic.name)
        if analytic.name in large:
            report = check_directions(point, analytic, rng, most_calls, step.along if step else None)
        else:
            report = (step and check_exactly(point, analytic, step, some)) or check_elements(point, analytic, some)
        reports[analytic.name] = report
    return reports, calls, why_not


def _sample(gradients: list[AnalyticGradient], sample: int | None, seed: int) -> dict[str, np.ndarray]:
    """Mark the elements to compare in each array: all, or `sample` elements of all arrays together."""
    elements = {analytic.name: analytic.gradient.size for analytic in gradients}
    total = sum(elements.values())
    chosen = np.full(total, sample is None or total <= sample)
    if not chosen.all():
        chosen[np.random.default_rng([seed, 13]).choice(total, sample, replace=False)] = True
    return dict(zip(elements, np.split(chosen, np.cumsum(list(elements.values()))[:-1])))


def _second_opinion(evidence: Evidence, rng: np.random.Generator) -> float | None:
    """The slope of the Taylor remainder along a random direction of the first argument whose gradient is wrong."""
    report = evidence.wrong[0]
    v = rng.standard_normal(report.analytic.size)
    line = evidence.scalar.line(evidence.exact[report.name], slice(None), v)
    return taylor_slope(line, float(np.sum(report.analytic.reshape(-1) * v)))
