"""The check itself: ask the backward, ask the differences, and believe neither without an error bar."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.diagnosis import diagnose, explain_shape
from numpy_attention.gradcheck.differences import Outputs, taylor_slope
from numpy_attention.gradcheck.directions import check_directions
from numpy_attention.gradcheck.elements import Claim, Scalar, check_elements
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.problem import (
    Arrays,
    Gradients,
    Inputs,
    Problem,
    is_float,
    problem_of_function,
    problem_of_layer,
    problem_of_op,
)
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report

EXHAUSTIVE = 1500  # arrays up to this size are checked element by element
MOST_CALLS = 1000  # for each larger one


def gradcheck(op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *,
              seed: int = 0, **options: Any) -> Report:
    """Compare `op_backward` with differences of `op` in float64; raise `GradientError` with a report, or return it.

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


def gradcheck_vjp(f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *,
                  seed: int = 0, **options: Any) -> Report:
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


def check(problem: Problem, seed: int = 0, exhaustive: int = EXHAUSTIVE, most_calls: int = MOST_CALLS,
          sample: int | None = None) -> Report:
    """Check a problem: first the shape of what the backward claims, then its numbers.

    Arrays of up to `exhaustive` elements are checked element by element, larger ones by random directions and
    bisection in at most about `most_calls` calls. `sample` is for checks by the thousand: of the arrays that go element
    by element, so many elements altogether, drawn from `seed`.
    """
    arrays = problem.inputs
    dy, grads = ask_backward(problem, arrays, seed)
    exact = {name: np.array(value, dtype=np.float64, order="C") if is_float(value) else value
             for name, value in arrays.items()}
    evaluate = problem.bind(exact)
    dy64 = tuple(np.asarray(one, dtype=np.float64) for one in dy)
    scalar = Scalar(evaluate, evaluate(), dy64)
    rng = np.random.default_rng([seed, 11])
    reports: dict[str, ArgumentReport] = {}
    found = claims(problem, arrays, exact, dy, grads, scalar.terms)
    chosen = _sample({claim.name: claim.gradient.size for claim in found}, sample, seed)
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
        evidence = Evidence(problem, exact, scalar, reports, seed)
        result.slope = second_opinion(evidence, rng)
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


def second_opinion(evidence: Evidence, rng: np.random.Generator) -> float | None:
    """The slope of the Taylor remainder along a random direction through the first argument that is wrong."""
    report = evidence.wrong[0]
    v = rng.standard_normal(report.analytic.size)
    line = evidence.scalar.line(evidence.exact[report.name], slice(None), v)
    return taylor_slope(line, float(np.sum(report.analytic.reshape(-1) * v)))


def ask_backward(problem: Problem, arrays: Arrays, seed: int) -> tuple[Outputs, Gradients]:
    """Run forward and backward with a random cotangent; refuse NaN, wrong shapes, changed inputs."""
    for name, value in arrays.items():
        if is_float(value):
            _require_finite(problem, f"the input {name}", value, seed)
    before = {name: value.copy() for name, value in arrays.items() if isinstance(value, np.ndarray)}
    y, cache = problem.run(arrays)
    for i, one in enumerate(y):
        _require_finite(problem, "the output" if len(y) == 1 else f"output {i}", one, seed)
    dy = random_cotangent(y, seed)
    kept = tuple(one.copy() for one in dy)
    try:
        claimed = problem.pull_back(dy, cache)
    except (ValueError, IndexError) as error:
        raise GradientError(f"gradcheck {problem.name}: the backward raised {type(error).__name__}: {error}\n"
                            "likely mistake: a factor that should be transposed, or axes of the wrong argument; "
                            f"repeat with seed={seed}") from error
    grads = {name: None if grad is None else np.array(grad) for name, grad in claimed.items()}
    for name, value in before.items():
        if not np.array_equal(arrays[name], value, equal_nan=value.dtype.kind == "f"):
            raise GradientError(f"gradcheck {problem.name}: the input {name} was changed in place")
    if not all(np.array_equal(a, b) for a, b in zip(dy, kept, strict=True)):
        raise GradientError(f"gradcheck {problem.name}: backward changed dy in place; a residual branch that reads "
                            "the same dy would then read something else")
    for name, again in problem.pull_back(dy, cache).items():
        first = grads[name]
        if first is not None and again is not None and not np.array_equal(first, again, equal_nan=True):
            raise GradientError(f"gradcheck {problem.name}: backward called twice gives two different d{name}; "
                                "does it change its cache in place?")
    for name in problem.differentiable:
        grad = grads.get(name)
        if grad is None:
            if name in problem.parameters:
                raise GradientError(f"gradcheck {problem.name}: backward returned no gradient for the parameter {name}")
            continue
        if grad.shape != arrays[name].shape:
            others = {other: arrays[other].shape for other in problem.differentiable if other != name}
            mistake = explain_shape(grad.shape, arrays[name].shape, others)
            raise GradientError(f"gradcheck {problem.name}: d{name} has shape {grad.shape}, but {name} has "
                                f"{arrays[name].shape}\nlikely mistake: {mistake}")
        _require_finite(problem, f"d{name}", grad, seed)
    return dy, grads


def random_cotangent(y: Outputs, seed: int) -> Outputs:
    """A normal dy for each output: ones would hide whatever sums to zero."""
    rng = np.random.default_rng([seed, 7])
    return tuple(np.asarray(rng.standard_normal(one.shape), dtype=one.dtype if one.dtype.kind == "f" else np.float64)
                 for one in y)


def claims(problem: Problem, arrays: Arrays, exact: Arrays, dy: Outputs, grads: Gradients,
           terms: float) -> list[Claim]:
    """Each gradient with the round-off to expect in it, in its own dtype.

    Measured: inputs and dy moved by a few ulps make the computed gradient jitter as its rounding does.
    The base: eps sqrt(K) times the gradient's size, K being the longest axis that may be summed over.
    """
    rng = np.random.default_rng(len(grads))
    given = {name: grad for name, grad in grads.items() if grad is not None and name in problem.differentiable}
    jitter = {name: np.zeros(grad.shape) for name, grad in given.items()}
    in_float64: Gradients = {}
    with np.errstate(all="ignore"):
        for ulps in (2, 2, 8, 8, 32, 32):
            moved = {name: _jittered(value, ulps, rng) if is_float(value) else value for name, value in arrays.items()}
            _, cache = problem.run(moved)
            again = problem.pull_back(tuple(_jittered(one, 2, rng) for one in dy), cache)
            for name, grad in given.items():
                change = np.abs(np.asarray(again[name], np.float64) - np.asarray(grad, np.float64))
                jitter[name] = np.fmax(jitter[name], change)
        if any(grad.dtype != np.float64 for grad in given.values()):
            _, cache = problem.run(exact)
            in_float64 = problem.pull_back(tuple(np.asarray(one, np.float64) for one in dy), cache)
    shapes = [value.shape for value in arrays.values() if isinstance(value, np.ndarray)]
    longest = max((max(shape, default=1) for shape in shapes), default=1)
    sizes = {name: float(np.max(np.abs(grad.astype(np.float64)), initial=0.0)) for name, grad in given.items()}
    # A gradient that is zero in theory (a key's bias) is left with the round-off of the terms that cancelled in it.
    least = 0.02 * max(sizes.values(), default=0.0)
    found = []
    for name, grad in given.items():
        unit = float(np.finfo(grad.dtype).eps) * longest**0.5
        # Terms of the size |dy y / x| that cancel leave this much, and all elements may be rounded alike.
        natural = terms / (min(1.0, float(np.sqrt(np.mean(exact[name] ** 2)))) or 1.0) if grad.size else 0.0
        found.append(Claim(name, np.asarray(grad, np.float64), unit * max(sizes[name], least), jitter[name],
                           0.25 * unit * natural, in_float64.get(name)))
    return found


def _jittered(value: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    ulps = rng.integers(-most, most + 1, value.shape).astype(value.dtype)
    moved: np.ndarray = value + ulps * np.spacing(np.abs(value))
    return moved


def _require_finite(problem: Problem, what: str, value: np.ndarray, seed: int) -> None:
    bad = ~np.isfinite(value)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    mistake = ""
    if not what.startswith("the input"):
        mistake = "\nlikely mistake: 0/0, log(0), inf - inf, or the exponential of a large number, at that place"
        kinds = {value.dtype.kind for value in problem.inputs.values() if isinstance(value, np.ndarray)}
        if "b" in kinds:
            mistake += "; a row that is hidden whole must give zeros, and what is hidden stays hidden on the way back"
        elif kinds & set("iu"):
            mistake += "; what is ignored must be left out: 0 times infinity is NaN"
    raise GradientError(f"gradcheck {problem.name}: {what} holds {value[index]} at index {index} "
                        f"({int(bad.sum())} of {value.size} elements are NaN or infinite){mistake}; "
                        f"repeat with seed={seed}")
