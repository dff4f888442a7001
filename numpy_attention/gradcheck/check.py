"""The check itself: ask the backward, ask two witnesses, and believe none without an error bar.

    |claim - derivative|  <=  8 (error bar of the derivative + round-off of the claim)        for every element

So there is no tolerance to choose. Complex steps give the derivative to the last digits; where differences do not
confirm them, since the function is not analytic or cannot take complex numbers, differences judge. A gradient in
float32 is held to float32's round-off, and where a witness resolves ten digits, ten digits must agree. What neither
resolves to four digits is not called right.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numpy_attention.gradcheck.claims import Claim, ask_backward, claims
from numpy_attention.gradcheck.complex_step import ComplexStep, NoComplexStep
from numpy_attention.gradcheck.diagnosis import diagnose
from numpy_attention.gradcheck.differences import check_ties, measure_stairs, taylor_slope
from numpy_attention.gradcheck.elements import at_corners, check_directions, check_elements, check_exactly, confirmed
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Outputs, Scalar, largest, sizes
from numpy_attention.gradcheck.problem import (
    FunctionProblem,
    Gradients,
    Inputs,
    LayerProblem,
    OpProblem,
    Options,
    Problem,
    checked,
    forward_of,
    in_float64,
    split_options,
)
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report
from numpy_attention.gradcheck.robustness import check_structure
from numpy_attention.gradcheck.tolerance import SAFETY, Point, hold_to_float64, in_double

EXHAUSTIVE = 1500  # arrays up to this size are checked element by element
MOST_CALLS = 1000  # for each larger one
RESOLVED = 1e-4  # what a witness must resolve, relative to the gradient's size, or the element is not called right


def gradcheck(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *, seed: int = 0, witness: str = "both",
    no_gradient: Sequence[str] = (), rtol: float = 0.0, atol: float = 0.0, options: Options | None = None,
    **more: Any,
) -> Report:
    """Compare `op_backward` with the derivative of `op` in float64; raise GradientError with a report, or return it.

    Formula: dL/dx = J^T dy for L = sum(dy * y), with a random dy drawn from `seed`

    `inputs`: a dict by argument name, or a tuple in argument order. Integer and boolean arrays are passed on but not
    differentiated. Options go to `op`, by keyword or, if their names are those of options of the check, in `options`;
    a `Generator` among them is copied for every call, so dropout stays fixed.

    `witness`: "complex" steps, "differences", or "both". `no_gradient`: the arguments for which None is right.
    `rtol`, `atol`: errors that are allowed on top, relative to the largest element of a gradient, and absolute; for
    an `op` that stops an iteration at a tolerance.

    Raises: GradientError, an AssertionError whose message is the report, when a gradient is wrong; TypeError or
    ValueError for inputs and options that the check can do nothing with; what `op` raises.

    Source: Ridders, Accurate Computation of F'(x) and F'(x)F''(x) (1982); Squire, Trapp, Using Complex Variables to
    Estimate Derivatives of Real Functions (1998).

    >>> def square(x): return x * x, x
    >>> def square_backward(dy, x): return 2 * x * dy
    >>> gradcheck(square, square_backward, {"x": np.array([[1.0, -2.0]])}).ok
    True
    """
    own = {"seed": seed, "witness": witness, "no_gradient": no_gradient, "rtol": rtol, "atol": atol}
    problem = OpProblem(op, op_backward, inputs, split_options(op, options, more, own), no_gradient)
    return check(problem, seed, witness=witness, rtol=rtol, atol=atol)


def gradcheck_vjp(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *, seed: int = 0, witness: str = "both",
    no_gradient: Sequence[str] = (), rtol: float = 0.0, atol: float = 0.0, options: Options | None = None,
    **more: Any,
) -> Report:
    """The same for a plain function `y = f(x, ...)` and its product `dx, ... = vjp(dy, x, ...)`.

    Formula: vjp(dy, x) = J^T dy

    Raises: GradientError, when a gradient is wrong; what `f` raises.

    >>> gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), {"x": np.array([0.3, 2.0])}).ok
    True
    """
    own = {"seed": seed, "witness": witness, "no_gradient": no_gradient, "rtol": rtol, "atol": atol}
    problem = FunctionProblem(f, vjp, inputs, split_options(f, options, more, own), no_gradient)
    return check(problem, seed, witness=witness, rtol=rtol, atol=atol)


def gradcheck_layer(
    layer: Any, inputs: Inputs, *, seed: int = 0, witness: str = "both", no_gradient: Sequence[str] = (),
    rtol: float = 0.0, atol: float = 0.0, options: Options | None = None, **more: Any,
) -> Report:
    """The same for a layer (`forward`) or a model (`loss`): every input, every parameter. The layer stays as it is.

    Formula: dL/dx and dL/dp = J^T dy, for every input x that has a gradient and every parameter p

    Raises: GradientError, when a gradient is wrong; what the layer raises.
    """
    own = {"seed": seed, "witness": witness, "no_gradient": no_gradient, "rtol": rtol, "atol": atol}
    problem = LayerProblem(layer, inputs, split_options(forward_of(layer), options, more, own), no_gradient)
    return check(problem, seed, witness=witness, rtol=rtol, atol=atol)


gradcheck_model = gradcheck_layer


def check(
    problem: Problem, seed: int = 0, exhaustive: int = EXHAUSTIVE, most_calls: int = MOST_CALLS,
    sample: int | None = None, witness: str = "both", rtol: float = 0.0, atol: float = 0.0, structure: bool = True,
) -> Report:
    """Check a problem: first the form of what the backward claims, then its numbers; unless `structure` is off, then
    whether it says the same in other circumstances.

    Arrays of up to `exhaustive` elements are checked element by element, larger ones by random directions and
    bisection in at most about `most_calls` calls. `sample` is for checks by the thousand: of the arrays that go element
    by element, so many elements altogether, drawn from `seed`.
    """
    seed, rtol, atol = checked(problem.name, seed, witness, rtol, atol)
    dy, grads = ask_backward(problem, seed)
    point, found, low = _take_stock(problem, dy, grads)
    for claim in found:
        claim.base += (atol + rtol * largest(claim.gradient)) / SAFETY
    rng = np.random.default_rng([seed, 11])
    names = [claim.name for claim in found]
    arrays = [point.exact[name] for name in names]
    measure_stairs(point.scalar.through(arrays, [sizes(x) * rng.choice([-1.0, 1.0], x.shape) for x in arrays]))

    chosen = _sample({claim.name: claim.gradient.size for claim in found}, sample, seed)
    smooth = {
        claim.name: ~at_corners(point.exact[claim.name], claim)
        for claim in found if claim.gradient.size > exhaustive
    }
    believed, why_not, calls = _believed(point, names, witness, rng, chosen | smooth)
    reports: dict[str, ArgumentReport] = {}
    for claim in found:
        some, step = chosen.get(claim.name), believed.get(claim.name)
        report = None
        if claim.gradient.size > exhaustive:
            report = check_directions(point, claim, rng, most_calls, step)
        elif step is not None:
            report = check_exactly(point, claim, step, some)
        reports[claim.name] = report or check_elements(point, claim, some)
    calls += check_ties(point, reports)
    for claim in low:
        hold_to_float64(reports[claim.name], claim)
    _mark_unresolved(point.scalar, found, reports, rtol, atol)

    calls += sum(report.calls for report in reports.values())
    result = Report(problem.name, reports, seed, calls, why_not=why_not)
    if result.wrong:
        evidence = Evidence(problem, point.exact, point.scalar, result)
        # What is asked for the words only must not stop the report: a function may raise beside its inputs.
        with np.errstate(all="ignore"):
            with contextlib.suppress(Exception):
                result.slope = _second_opinion(evidence, rng)
            with contextlib.suppress(Exception):
                result.diagnosis = diagnose(evidence)
    if not result.ok:
        raise GradientError(str(result), result)
    if structure:  # last, since numbers that are wrong everywhere tell more
        result.notes = check_structure(problem, dy, grads, seed, rtol, atol)
    return result


def _take_stock(problem: Problem, dy: Outputs, grads: Gradients) -> tuple[Point, list[Claim], list[Claim]]:
    """The point at which it is checked, in float64, and what is claimed there; and what is in a lower precision."""
    exact = in_float64(problem.inputs)
    evaluate = problem.bind(exact)
    scalar = Scalar(evaluate, evaluate(), tuple(np.asarray(one, dtype=np.float64) for one in dy))
    low: list[Claim] = []
    double = in_double(problem, exact, scalar.dy, grads)
    if double is not None:
        low, _ = claims(problem, dy, grads, scalar.terms)
        problem, dy, grads = problem.but(inputs=exact), scalar.dy, double
    found, moves = claims(problem, dy, grads, scalar.terms)
    return Point(problem, exact, scalar, moves), found, low


def _believed(
    point: Point, names: list[str], witness: str, rng: np.random.Generator, moving: dict[str, np.ndarray]
) -> tuple[dict[str, ComplexStep], str, int]:
    """The complex step for each array in which differences confirm it, all at once or one by one; why not; calls."""
    if witness == "differences":
        return {}, "", 0
    try:
        step = ComplexStep(point.problem, point.exact, point.scalar.y, point.scalar.dy)
    except NoComplexStep as error:
        if witness == "complex":
            name = point.problem.name
            raise GradientError(f"gradcheck {name}: no complex step: {error}; use witness='both'") from None
        return {}, str(error), 0
    believed = dict.fromkeys(names, step)
    doubt, calls = confirmed(point, names, step, rng, moving) if witness == "both" else ("", 0)
    why_not = ""
    for name in names if doubt else ():
        doubt, more = confirmed(point, [name], step, rng, moving)
        calls += more
        if doubt:
            del believed[name]
            why_not = doubt
    return believed, why_not, calls


def _mark_unresolved(
    scalar: Scalar, found: list[Claim], reports: dict[str, ArgumentReport], rtol: float, atol: float
) -> None:
    """Say to what errors are relative, and which elements no witness can tell from wrong ones."""
    of_all = max((report.largest for report in reports.values()), default=0.0)
    for claim in found:
        report = reports[claim.name]
        report.size = max(report.largest, 1e-3 * of_all, 1e-6 * scalar.terms) or 1.0
        vague = report.doubt > max(RESOLVED, rtol, 100 * claim.eps, 100 * scalar.eps) * report.size + atol
        report.unresolved = vague & ~report.wrong & ~report.kinks & np.isfinite(report.numeric)


def _sample(elements: dict[str, int], sample: int | None, seed: int) -> dict[str, np.ndarray]:
    """Which elements of each array are looked at; nothing where all are."""
    total = sum(elements.values())
    if sample is None or total <= sample:
        return {}
    chosen = np.zeros(total, dtype=bool)
    chosen[np.random.default_rng([seed, 13]).choice(total, sample, replace=False)] = True
    return dict(zip(elements, np.split(chosen, np.cumsum(list(elements.values()))[:-1])))


def _second_opinion(evidence: Evidence, rng: np.random.Generator) -> float | None:
    """The slope of the Taylor remainder along a random direction through the first argument that is wrong."""
    report = evidence.wrong[0]
    v = rng.standard_normal(report.analytic.size)
    line = evidence.scalar.line(evidence.exact[report.name], slice(None), v)
    return taylor_slope(line, float(np.sum(report.analytic.reshape(-1) * v)))
