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
    BackwardProblem      `curvature`       with `gradgrad`, check the derivative of the backward too
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from numpy_attention.gradcheck.complex_step import check_exactly, complex_steps
from numpy_attention.gradcheck.curvature import BackwardProblem
from numpy_attention.gradcheck.diagnosis import diagnose
from numpy_attention.gradcheck.elements import at_corners, check_directions, check_elements, check_ties
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import measure_stairs, sizes, taylor_slope
from numpy_attention.gradcheck.problem import (
    OWN,
    FunctionProblem,
    Inputs,
    LayerProblem,
    OpProblem,
    Options,
    Problem,
    by_leaf,
    checked,
    forward_of,
    split_options,
)
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report
from numpy_attention.gradcheck.robustness import check_structure, chosen
from numpy_attention.gradcheck.tolerance import (
    AnalyticGradient,
    Point,
    compare_with_float64,
    mark_unresolved,
    measure_round_off,
    run_backward,
)

EXHAUSTIVE = 1500  # arrays of up to this size are checked element by element
NOISE = 1000.0  # if a function differs from run to run, differences may have an error of this multiple


def gradcheck(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *, seed: int = 0, reference: str = "both",
    no_gradient: Sequence[str] = (), skip: Inputs | None = None, rtol: float = 0.0, atol: float = 0.0,
    nondet: float = 0.0, robustness: bool | Iterable[str] = True, gradgrad: bool = False,
    options: Options | None = None, **more: Any,
) -> Report:
    """Compare `op_backward` with the derivative of `op` in float64; raise GradientError with a report, or return it.

    Formula: dL/dx = J^T dy for L = sum(dy * y), with a random dy drawn from `seed`

    `inputs`: a dict by argument name, or a tuple in argument order. Integer and boolean arrays are passed on but not
    differentiated. Other keywords are options of `op`. If an option of `op` has the same name as an option of the
    check, pass it in `options`. A `Generator` in the options is copied for every call, so dropout stays fixed.

    `reference`: "complex" steps, "differences", or "both". `no_gradient`: arguments that have no gradient (None).
    `skip`: a boolean mask for an argument, by name; where it is True, nothing is compared, and the gradient may be NaN.
    `rtol`, `atol`: an extra error that is allowed, relative to the largest element of a gradient, and absolute; useful
    for an `op` that stops an iteration at a tolerance. `nondet`: how much outputs and gradients may differ from run to
    run. `robustness`: True, False, or the names of the checks to run (`robustness.py`). `gradgrad`: check the
    derivative of `op_backward` too (`curvature.py`).

    Raises: GradientError, an AssertionError whose message is the report, when a gradient is wrong; TypeError or
    ValueError for inputs and options that cannot be used; any error of `op`.

    Source: Ridders, Accurate Computation of F'(x) and F'(x)F''(x) (1982); Squire, Trapp, Using Complex Variables to
    Estimate Derivatives of Real Functions (1998).

    >>> def square(x): return x * x, x
    >>> def square_backward(dy, x): return 2 * x * dy
    >>> gradcheck(square, square_backward, {"x": np.array([[1.0, -2.0]])}).ok
    True
    """
    own = {
        "seed": seed, "reference": reference, "no_gradient": no_gradient, "skip": skip, "rtol": rtol, "atol": atol,
        "nondet": nondet, "robustness": robustness, "gradgrad": gradgrad, "options": options,
    }
    return _check(lambda *given: OpProblem(op, op_backward, inputs, *given), op, own | more)


def gradcheck_vjp(f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, **keywords: Any) -> Report:
    """Check a plain function `y = f(x, ...)` and its vector-Jacobian product `dx, ... = vjp(dy, x, ...)`.

    Formula: vjp(dy, x) = J^T dy

    The keywords are those of `gradcheck`.

    Raises: GradientError, when a gradient is wrong; any error of `f`.

    >>> gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), {"x": np.array([0.3, 2.0])}).ok
    True
    """
    return _check(lambda *given: FunctionProblem(f, vjp, inputs, *given), f, keywords)


def gradcheck_layer(layer: Any, inputs: Inputs, **keywords: Any) -> Report:
    """Check a layer (`forward`) or a model (`loss`): every input, every parameter. The layer does not change.

    Formula: dL/dx and dL/dp = J^T dy, for every input x that has a gradient and every parameter p

    The keywords are those of `gradcheck`.

    Raises: GradientError, when a gradient is wrong; any error of the layer.
    """
    return _check(lambda *given: LayerProblem(layer, inputs, *given), forward_of(layer), keywords)


gradcheck_model = gradcheck_layer


def _check(problem: Callable[[Options, Sequence[str]], Problem], f: Callable[..., Any], more: dict[str, Any]) -> Report:
    """Split the keywords into options of the check and options of f, make the problem, and check it."""
    own = {name: more.pop(name, default) for name, default in OWN.items()}
    options = split_options(f, more.pop("options", None), more, own)
    return check(problem(options, own.pop("no_gradient")), structure=own.pop("robustness"), **own)


def check(
    problem: Problem, seed: int = 0, exhaustive: int = EXHAUSTIVE, sample: int | None = None, reference: str = "both",
    rtol: float = 0.0, atol: float = 0.0, structure: bool | Iterable[str] = True, skip: Inputs | None = None,
    nondet: float = 0.0, gradgrad: bool = False,
) -> Report:
    """Check a problem: the shapes and dtypes of the gradients, their values and, with `structure`, their robustness.

    Arrays of up to `exhaustive` elements are compared element by element, larger ones by random directions and
    bisection in about a thousand calls. With `sample`, only this many elements of all arrays together are
    compared, drawn from `seed`; this makes thousands of checks affordable.

    Raises: GradientError, when a gradient is wrong or cannot be resolved
    """
    seed, rtol, atol, nondet = checked(problem.name, seed, reference, rtol, atol, nondet, gradgrad)
    robust = chosen(problem.name, structure)
    masks = by_leaf(problem, "skip", {} if skip is None else skip, bool)
    problem = problem.with_changes(skip=masks, nondet=nondet)
    dy, grads = run_backward(problem, seed)
    point, gradients, in_low_precision = measure_round_off(problem, dy, grads, rtol, atol)
    rng, compared = np.random.default_rng([seed, 11]), _sample(problem, gradients, sample, seed)
    reports, calls, why_not = _compare(point, gradients, rng, reference, exhaustive, compared)
    for name, mask in problem.skip.items():
        reports[name].notes.append(f"d{name}: skip leaves out {int(mask.sum())} of {mask.size} elements")
    if any(report.kinks.any() for report in reports.values()):
        calls += check_ties(point, reports)
    for analytic in in_low_precision:
        compare_with_float64(reports[analytic.name], analytic)
    mark_unresolved(point.scalar, gradients, reports, rtol, atol + NOISE * nondet)

    calls += sum(report.calls for report in reports.values())
    result = Report(problem.name, reports, seed, calls, why_not=why_not)
    if result.wrong:
        evidence = Evidence(problem, point.exact, point.scalar, result)
        # An error in the diagnosis must not stop the report: a function may raise at other inputs.
        with np.errstate(all="ignore"):
            with contextlib.suppress(Exception):
                result.slope = _second_opinion(evidence, rng)
            with contextlib.suppress(Exception):
                result.diagnosis = problem.likely or diagnose(evidence)
    if not result.ok:
        raise GradientError(str(result), result)
    # Last: a report of wrong values is more helpful than a failed check of robustness.
    result.notes = check_structure(problem, dy, grads, seed, rtol, atol, robust)
    if gradgrad:
        again = BackwardProblem(problem.with_changes(inputs=point.exact), point.scalar.dy, grads)
        second = check(again, seed, exhaustive, sample, reference, rtol, atol, False, skip, nondet)
        result.notes.append(f"second derivatives: right, worst relative difference {second.error:.1e}")
    return result


def _compare(
    point: Point, gradients: list[AnalyticGradient], rng: np.random.Generator, reference: str, exhaustive: int,
    compared: dict[str, np.ndarray],
) -> tuple[dict[str, ArgumentReport], int, str]:
    """Compare each gradient with its derivative; return reports, calls, and the reason if no complex step was used."""
    names = [analytic.name for analytic in gradients]
    arrays, kept = [point.exact[name] for name in names], {name: point.problem.kept(name) for name in names}
    signs = [rng.choice([-1.0, 1.0], x.shape) * kept[name] for name, x in zip(names, arrays)]
    measure_stairs(point.scalar.through(arrays, [sizes(x) * sign for x, sign in zip(arrays, signs)]))
    large = {analytic.name: analytic for analytic in gradients if analytic.gradient.size > exhaustive}
    smooth = {name: kept[name].reshape(-1) & ~at_corners(point.exact[name], one) for name, one in large.items()}
    steps, why_not, calls = complex_steps(point, names, reference, rng, compared | smooth)
    reports: dict[str, ArgumentReport] = {}
    for analytic in gradients:
        some, step = compared[analytic.name], steps.get(analytic.name)
        if analytic.name in large:
            report = check_directions(point, analytic, rng, step.along if step else None)
        else:
            report = (step and check_exactly(point, analytic, step, some)) or check_elements(point, analytic, some)
        reports[analytic.name] = report
    return reports, calls, why_not


def _sample(problem: Problem, found: list[AnalyticGradient], sample: int | None, seed: int) -> dict[str, np.ndarray]:
    """Mark the elements to compare in each array: all, or `sample` elements of all arrays together, without `skip`."""
    total = sum(analytic.gradient.size for analytic in found)
    marked = np.full(total, sample is None or total <= sample)
    if not marked.all():
        marked[np.random.default_rng([seed, 13]).choice(total, sample, replace=False)] = True
    parts = np.split(marked, np.cumsum([analytic.gradient.size for analytic in found])[:-1])
    return {one.name: part & problem.kept(one.name).reshape(-1) for one, part in zip(found, parts)}


def _second_opinion(evidence: Evidence, rng: np.random.Generator) -> float | None:
    """The slope of the Taylor remainder along a random direction of the first argument whose gradient is wrong."""
    report = evidence.wrong[0]
    v = rng.standard_normal(report.analytic.size) * evidence.problem.kept(report.name).reshape(-1)
    line = evidence.scalar.line(evidence.exact[report.name], slice(None), v)
    return taylor_slope(line, float(np.sum(report.analytic.reshape(-1) * v)))
