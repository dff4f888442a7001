"""The whole check: run the backward, compare each gradient with a derivative, test its conduct, and report.

    |gradient - derivative|  <=  8 (error of the derivative + round-off)

for every element, so you need not choose a tolerance (`compare`). Complex steps give the derivative to the last digits.
Where differences do not confirm them, because the function is not analytic or cannot take complex numbers, the check
uses differences (`derivative`). If ten digits of the derivative are known, ten digits must agree. If fewer than four
digits are known, the gradient is not called right. `check` has all steps, in their order.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from numpy_attention.gradcheck.compare import (
    EXHAUSTIVE,
    Point,
    at_float64,
    compare_all,
    compare_with_float64,
    reference_at,
    set_sizes,
)
from numpy_attention.gradcheck.corners import check_ties
from numpy_attention.gradcheck.derivative import taylor_slope
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
    run_backward,
    split_options,
)
from numpy_attention.gradcheck.report import GradientError, Report
from numpy_attention.gradcheck.robust import check_structure, chosen
from numpy_attention.gradcheck.why import Evidence, diagnose

__all__ = ["EXHAUSTIVE", "check", "gradcheck", "gradcheck_layer", "gradcheck_model", "gradcheck_vjp"]


def gradcheck(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *, seed: int = 0, reference: str = "both",
    no_gradient: Sequence[str] = (), skip: Inputs | None = None, rtol: float = 0.0, atol: float = 0.0,
    nondet: float = 0.0, robustness: bool | Iterable[str] = True, options: Options | None = None, **more: Any,
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
    run. `robustness`: True, False, or the names of the checks to run (`robust.py`).

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
        "nondet": nondet, "robustness": robustness, "options": options,
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
    nondet: float = 0.0, explain: bool = True,
) -> Report:
    """Check a problem: the shapes and dtypes of the gradients, their values and, with `structure`, their robustness.

    Arrays of up to `exhaustive` elements are compared element by element, larger ones by random directions and
    bisection in about a thousand calls. With `sample`, only this many elements of all arrays together are
    compared, drawn from `seed`; this makes thousands of checks affordable. Without `explain`, the report of a wrong
    gradient has no diagnosis.

    Raises: GradientError, when a gradient is wrong or cannot be resolved
    """
    seed, rtol, atol, nondet = checked(problem.name, seed, reference, rtol, atol, nondet)
    robust, rng = chosen(problem.name, structure), np.random.default_rng([seed, 11])
    problem = problem.with_changes(skip=by_leaf(problem, "skip", {} if skip is None else skip, bool), nondet=nondet)

    dy, grads = run_backward(problem, seed)
    point, in_low_precision = at_float64(problem, dy, grads, rtol, atol, rng)
    some = _elements(problem, {one.name: one.gradient.size for one in point.gradients}, sample, seed)
    exact, why_not = reference_at(point, some, reference, exhaustive, rng)
    reports, why_not = compare_all(point, some, exact, why_not, exhaustive, rng)
    if any(report.kinks.any() for report in reports.values()):
        check_ties(point, reports)
    if in_low_precision:
        compare_with_float64(point, reports, in_low_precision, problem, dy)
    set_sizes(point, reports)

    result = Report(problem.name, reports, seed, problem.calls, why_not=why_not)
    if result.wrong:
        if explain:
            _explain(result, point, rng)
    else:  # a report of wrong values is more helpful than a failed check of robustness
        result.notes = check_structure(problem, dy, grads, seed, rtol, atol, robust) if result.ok else []
    result.calls = problem.calls
    if not result.ok:
        raise GradientError(str(result), result)
    return result


def _elements(problem: Problem, sizes: dict[str, int], sample: int | None, seed: int) -> dict[str, np.ndarray]:
    """Mark the elements to compare in each array: all, or `sample` elements of all arrays together, without `skip`."""
    total = sum(sizes.values())
    marked = np.full(total, sample is None or total <= sample)
    if not marked.all():
        marked[np.random.default_rng([seed, 13]).choice(total, sample, replace=False)] = True
    parts = np.split(marked, np.cumsum([*sizes.values()])[:-1])
    return {name: part & problem.kept(name).reshape(-1) for name, part in zip(sizes, parts)}


def _explain(result: Report, point: Point, rng: np.random.Generator) -> None:
    """A second opinion, and the likely mistake; an error in them must not stop the report."""
    with np.errstate(all="ignore"):
        with contextlib.suppress(Exception):  # a function may raise at other inputs
            report = result.wrong[0]
            v = rng.standard_normal(report.shape) * point.problem.kept(report.name)
            line = point.scalar.through([point.exact[report.name]], [v])
            result.slope = taylor_slope(line, float(np.sum(report.analytic * v)))
        with contextlib.suppress(Exception):
            result.diagnosis = diagnose(Evidence(point.problem, point.exact, point.scalar, result))
