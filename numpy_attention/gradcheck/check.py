"""The check itself: ask the backward, ask the differences, and believe neither without an error bar."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .differences import Line, Outputs, first_step, is_kink, quick, refined
from .problem import Arrays, Gradients, Inputs, Problem, is_float, problem_of_function, problem_of_layer, problem_of_op
from .report import ArgumentReport, GradientError, Report

EPS = float(np.finfo(np.float64).eps)
SAFETY = 8.0  # how many error bars apart is wrong
REFINED = 256  # at most so many doubtful elements of an argument get a tableau each


def gradcheck(op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, *,
              seed: int = 0, **options: Any) -> Report:
    """Compare `op_backward` with differences of `op` in float64; raise `GradientError` with a report, or return it.

    dL/dx = J^T dy  for L = sum(dy * y), with a random dy drawn from `seed`

    `inputs`: a dict by argument name, or a tuple in argument order. Integer and boolean arrays are passed on but not
    differentiated. Options go to `op`; a `Generator` among them is copied for every call, so dropout stays fixed.
    """
    return check(problem_of_op(op, op_backward, inputs, options), seed)


def gradcheck_vjp(f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *,
                  seed: int = 0, **options: Any) -> Report:
    """The same for a plain function `y = f(x, ...)` and its product `dx, ... = vjp(dy, x, ...)`."""
    return check(problem_of_function(f, vjp, inputs, options), seed)


def gradcheck_layer(layer: Any, inputs: Inputs, *, seed: int = 0, **options: Any) -> Report:
    """The same for a layer (`forward`) or a model (`loss`): every input, every parameter. The layer stays as it is."""
    return check(problem_of_layer(layer, inputs, options), seed)


gradcheck_model = gradcheck_layer


def check(problem: Problem, seed: int = 0) -> Report:
    """Check a problem: the gradients the backward claims, then every element by differences."""
    arrays = problem.inputs
    dy, grads = ask_backward(problem, arrays, seed)
    exact = {name: np.array(value, dtype=np.float64, order="C") if is_float(value) else value
             for name, value in arrays.items()}
    evaluate = problem.bind(exact)
    dy64 = tuple(np.asarray(one, dtype=np.float64) for one in dy)
    y64 = evaluate()
    rounding = rounding_of_backward(problem, arrays, dy, grads)
    terms = max((float(np.max(np.abs(a * b), initial=0.0)) for a, b in zip(y64, dy64, strict=True)), default=0.0)
    floor = 32 * EPS * terms

    reports: dict[str, ArgumentReport] = {}
    for name in problem.differentiable:
        grad = grads.get(name)
        if grad is None:
            continue
        reports[name] = _check_elements(name, evaluate, exact[name], np.asarray(grad, np.float64), y64, dy64,
                                        floor + SAFETY * rounding[name][0], rounding[name][1])
    largest = max((float(np.max(np.abs(r.numeric), initial=0.0)) for r in reports.values()), default=0.0)
    for report in reports.values():
        report.size = max(float(np.max(np.abs(report.numeric), initial=0.0)), 1e-3 * largest, 1e-6 * terms) or 1.0
    result = Report(problem.name, reports, seed, sum(report.calls for report in reports.values()))
    if not result.ok:
        raise GradientError(str(result), result)
    return result


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
    grads = {name: None if grad is None else np.array(grad) for name, grad in problem.pull_back(dy, cache).items()}
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
            raise GradientError(f"gradcheck {problem.name}: d{name} has shape {grad.shape}, but {name} has "
                                f"{arrays[name].shape}")
        _require_finite(problem, f"d{name}", grad, seed)
    return dy, grads


def random_cotangent(y: Outputs, seed: int) -> Outputs:
    """A normal dy for each output: ones would hide whatever sums to zero."""
    rng = np.random.default_rng([seed, 7])
    return tuple(np.asarray(rng.standard_normal(one.shape), dtype=one.dtype if one.dtype.kind == "f" else np.float64)
                 for one in y)


def rounding_of_backward(problem: Problem, arrays: Arrays, dy: Outputs,
                         grads: Gradients) -> dict[str, tuple[float, np.ndarray]]:
    """The round-off to expect in each gradient, in its own dtype: a base for all its elements, and the jitter of each.

    Measured: inputs and dy moved by an ulp or two make the computed gradient jitter as its rounding does.
    The base: eps sqrt(K) times the gradient's size, K being the longest axis that may be summed over.
    """
    rng = np.random.default_rng(len(grads))
    jitter = {name: np.zeros(grad.shape) for name, grad in grads.items() if grad is not None}
    for _ in range(4):
        moved = {name: _jittered(value, rng) if is_float(value) else value for name, value in arrays.items()}
        with np.errstate(all="ignore"):
            _, cache = problem.run(moved)
            for name, grad in problem.pull_back(tuple(_jittered(one, rng) for one in dy), cache).items():
                if grad is not None and grads[name] is not None:
                    change = np.abs(np.asarray(grad, np.float64) - np.asarray(grads[name], np.float64))
                    jitter[name] = np.fmax(jitter[name], change)
    shapes = [value.shape for value in arrays.values() if isinstance(value, np.ndarray)]
    longest = max((max(shape, default=1) for shape in shapes), default=1)
    rounding: dict[str, tuple[float, np.ndarray]] = {}
    for name, grad in grads.items():
        if grad is not None:
            eps = float(np.finfo(grad.dtype).eps)
            size = float(np.max(np.abs(grad.astype(np.float64)), initial=0.0))
            rounding[name] = eps * longest**0.5 * size, jitter[name]
    return rounding


def _jittered(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    ulps = rng.integers(-2, 3, value.shape).astype(value.dtype)
    moved: np.ndarray = value + ulps * np.spacing(np.abs(value))
    return moved


def _check_elements(name: str, evaluate: Any, x: np.ndarray, analytic: np.ndarray, y: Outputs, dy: Outputs,
                    floor: float, jitter: np.ndarray) -> ArgumentReport:
    claimed, noise = analytic.reshape(-1), jitter.reshape(-1)
    numeric, error = np.empty(x.size), np.empty(x.size)
    kinks = np.zeros(x.size, dtype=bool)
    rms = float(np.sqrt(np.mean(x * x))) if x.size else 0.0
    one = np.ones(1)
    lines = [Line(evaluate, x, slice(i, i + 1), one, y, dy) for i in range(x.size)]
    steps = [first_step(float(value), rms) for value in x.reshape(-1)]
    for i, line in enumerate(lines):
        numeric[i], error[i], _, _ = quick(line, steps[i])

    def resolution() -> np.ndarray:
        size = float(np.max(np.abs(numeric[np.isfinite(numeric)]), initial=0.0))
        return SAFETY * (error + noise) + floor + 1e-11 * size

    # Doubtful: off by more than a tight tolerance, whatever the error bar says.
    with np.errstate(all="ignore"):
        off = np.abs(claimed - numeric)
        size = float(np.max(np.abs(numeric), initial=0.0))
        tight = 1e-8 * np.abs(numeric) + floor + 1e-11 * size
    doubtful = np.flatnonzero(~(off <= tight))
    for i in doubtful[np.argsort(-np.nan_to_num(off[doubtful], nan=np.inf))][:REFINED]:
        derivative = refined(lines[i], steps[i])
        if derivative.error < error[i] or not np.isfinite(numeric[i]):
            numeric[i], error[i] = derivative.value, derivative.error
        # At a kink the backward itself jumps when x is moved by an ulp: leave that noise out of the question.
        bare = SAFETY * error[i] + floor + 1e-11 * size
        if not abs(claimed[i] - numeric[i]) <= bare and is_kink(lines[i], derivative, steps[i]):
            low, high = sorted((derivative.left, derivative.right))
            slack = 1e-3 * max(abs(low), abs(high))
            kinks[i] = low - slack <= claimed[i] <= high + slack
    bar = resolution()
    with np.errstate(all="ignore"):
        wrong = ~(np.abs(claimed - numeric) <= bar) & ~kinks
    unresolved = wrong & ~np.isfinite(numeric)
    shape = x.shape
    report = ArgumentReport(name, f"d{name}", analytic, numeric.reshape(shape), bar.reshape(shape),
                            (wrong & ~unresolved).reshape(shape), kinks.reshape(shape),
                            sum(line.calls for line in lines))
    if unresolved.any():
        report.notes.append(f"d{name}: {int(unresolved.sum())} elements on the edge of the domain have no difference")
    return report


def _require_finite(problem: Problem, what: str, value: np.ndarray, seed: int) -> None:
    bad = ~np.isfinite(value)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise GradientError(f"gradcheck {problem.name}: {what} holds {value[index]} at index {index} "
                            f"({int(bad.sum())} of {value.size} elements are NaN or infinite); repeat with seed={seed}")
