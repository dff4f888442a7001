"""The check itself: ask the backward, ask the differences, and believe neither without an error bar.

    |claim - difference|  <=  8 (error bar of the difference + round-off of the claim)        for every element

So there is no tolerance to choose. A gradient in float32 is held to float32's round-off, an element that the
differences cannot resolve raises no alarm, and where they resolve ten digits, ten digits must agree.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.claims import ask_backward, claims
from numpy_attention.gradcheck.diagnosis import diagnose
from numpy_attention.gradcheck.differences import taylor_slope
from numpy_attention.gradcheck.directions import check_directions
from numpy_attention.gradcheck.elements import check_elements
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Scalar
from numpy_attention.gradcheck.problem import (
    Inputs,
    Problem,
    in_float64,
    problem_of_function,
    problem_of_layer,
    problem_of_op,
)
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report

EXHAUSTIVE = 1500  # arrays up to this size are checked element by element
MOST_CALLS = 1000  # for each larger one


def gradcheck(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *, seed: int = 0, **options: Any
) -> Report:
    """Compare `op_backward` with differences of `op` in float64; raise GradientError with a report, or return it.

    Formula: dL/dx = J^T dy for L = sum(dy * y), with a random dy drawn from `seed`

    `inputs`: a dict by argument name, or a tuple in argument order. Integer and boolean arrays are passed on but not
    differentiated. Options go to `op`; a `Generator` among them is copied for every call, so dropout stays fixed.

    Raises: GradientError, an AssertionError whose message is the report, when a gradient is wrong; what `op` raises.

    Source: Ridders, Accurate Computation of F'(x) and F'(x)F''(x) (1982).

    >>> def square(x): return x * x, x
    >>> def square_backward(dy, x): return 2 * x * dy
    >>> gradcheck(square, square_backward, {"x": np.array([[1.0, -2.0]])}).ok
    True
    """
    return check(problem_of_op(op, op_backward, inputs, options), seed)


def gradcheck_vjp(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *, seed: int = 0, **options: Any
) -> Report:
    """The same for a plain function `y = f(x, ...)` and its product `dx, ... = vjp(dy, x, ...)`.

    Formula: vjp(dy, x) = J^T dy

    Raises: GradientError, when a gradient is wrong; what `f` raises.

    >>> gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), {"x": np.array([0.3, 2.0])}).ok
    True
    """
    return check(problem_of_function(f, vjp, inputs, options), seed)


def gradcheck_layer(layer: Any, inputs: Inputs, *, seed: int = 0, **options: Any) -> Report:
    """The same for a layer (`forward`) or a model (`loss`): every input, every parameter. The layer stays as it is.

    Formula: dL/dx and dL/dp = J^T dy, for every input x that has a gradient and every parameter p

    Raises: GradientError, when a gradient is wrong; what the layer raises.
    """
    return check(problem_of_layer(layer, inputs, options), seed)


gradcheck_model = gradcheck_layer


def check(
    problem: Problem, seed: int = 0, exhaustive: int = EXHAUSTIVE, most_calls: int = MOST_CALLS,
    sample: int | None = None,
) -> Report:
    """Check a problem: first the form of what the backward claims, then its numbers.

    Arrays of up to `exhaustive` elements are checked element by element, larger ones by random directions and
    bisection in at most about `most_calls` calls. `sample` is for checks by the thousand: of the arrays that go element
    by element, so many elements altogether, drawn from `seed`.
    """
    dy, grads = ask_backward(problem, seed)
    exact = in_float64(problem.inputs)
    evaluate = problem.bind(exact)
    scalar = Scalar(evaluate, evaluate(), tuple(np.asarray(one, dtype=np.float64) for one in dy))
    found = claims(problem, exact, dy, grads, scalar.terms)
    chosen = _sample({claim.name: claim.gradient.size for claim in found}, sample, seed)
    rng = np.random.default_rng([seed, 11])
    reports: dict[str, ArgumentReport] = {}
    for claim in found:
        x = exact[claim.name]
        if x.size <= exhaustive:
            reports[claim.name] = check_elements(scalar, x, claim, chosen.get(claim.name))
        else:
            reports[claim.name] = check_directions(scalar, x, claim, rng, most_calls)
    largest = max((report.largest for report in reports.values()), default=0.0)
    for report in reports.values():
        report.size = max(report.largest, 1e-3 * largest, 1e-6 * scalar.terms) or 1.0
    result = Report(problem.name, reports, seed, sum(report.calls for report in reports.values()))
    if not result.ok:
        evidence = Evidence(problem, exact, scalar, result)
        result.slope = _second_opinion(evidence, rng)
        result.diagnosis = diagnose(evidence)
        raise GradientError(str(result), result)
    return result


def _sample(sizes: dict[str, int], sample: int | None, seed: int) -> dict[str, np.ndarray]:
    """Which elements of each array are looked at; nothing where all are."""
    total = sum(sizes.values())
    if sample is None or total <= sample:
        return {}
    chosen = np.zeros(total, dtype=bool)
    chosen[np.random.default_rng([seed, 13]).choice(total, sample, replace=False)] = True
    return dict(zip(sizes, np.split(chosen, np.cumsum(list(sizes.values()))[:-1])))


def _second_opinion(evidence: Evidence, rng: np.random.Generator) -> float | None:
    """The slope of the Taylor remainder along a random direction through the first argument that is wrong."""
    report = evidence.wrong[0]
    v = rng.standard_normal(report.analytic.size)
    line = evidence.scalar.line(evidence.exact[report.name], slice(None), v)
    return taylor_slope(line, float(np.sum(report.analytic.reshape(-1) * v)))
