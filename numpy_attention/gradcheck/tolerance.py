"""The tolerance: measure the round-off in the analytic gradients, and compute the allowed error of each element.

dy is drawn at random for every output: a dy of ones would hide a gradient that sums to zero, such as a softmax's.
Before the comparison, the gradients must be valid: no NaN, inputs and dy unchanged, two calls of the backward with
equal results, and each gradient in the shape of its argument.

Then every element may differ from the derivative by

    tolerance = 8 (error of the derivative + round-off of the gradient) + floor

    error        the estimated error of a difference (`line`); 0 for a complex step
    floor        32 last bits (units in the last place) of the terms |dy y|: the round-off of the sum L, which
                 limits every derivative of L

The round-off of an unknown function cannot be derived, so it is measured:

    jitter       one number for each element: its change when inputs and dy move by a few last bits
    base         one number for all elements: eps sqrt(K) max|dx|, for K terms of a sum that are rounded independently,
                 where K is the longest axis of any input; plus rtol and atol of the caller
    lenient      eps sqrt(K) |dy y| / |x|, for large terms that cancel; used only in low precision

The jitter alone can mislead in two ways. If a gradient is wrong only at one point (zero, or where two inputs are
equal), it jumps as soon as the inputs move: the jitter is as large as the error. And a function may change only in
steps, for example 1 - p for p near 1: then a few last bits change nothing, so the jitter is too small. So for an
element in doubt, `RoundOff` compares gradient and derivative again, at points nearby and farther away. For a right
gradient the difference scatters by the round-off of both. For a wrong gradient the difference hardly scatters: it is
the same number everywhere, or zero everywhere except at the point itself.

A gradient in float32 or float16 must be close to the gradient of the same backward in float64, which differences and
complex steps have checked to the last digits (`compare_with_float64`). The tolerance is the measured round-off of the
dtype. In an array of many elements the tolerance is only as large as most elements need, so one wrong element of
100,000 is found.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.line import Outputs, Scalar, largest, rms
from numpy_attention.gradcheck.problem import Gradients, Problem, in_float64, is_float
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.trees import Arrays

SAFETY = 8.0  # errors and round-off are estimates: allow this multiple
JUMP = 1e-9  # relative to the gradient: a larger jitter is measured again
RESOLVED = 1e-4  # relative to the gradient: with a larger error of the derivative, no element is called right
KNOWN = "a small known difference is allowed by nondet=..."
MANY = 64  # with so many elements, the tolerance that most of them need can be estimated

FURTHER = (2**16, 2**16, 2**26, 2**26)  # last bits
FAR = (2**38, 2**38, 2**41, 2**41)  # for errors as small as round-off, if the function changes only in long steps
FARTHEST = (2**46,) * 8  # for longer steps; a real error changes too, so the scatter must be as large as the error

DerivativeOf = Callable[[int], tuple[float, int]]  # element -> derivative, number of calls


class Move(NamedTuple):
    """Inputs and dy, moved by a few last bits, and the gradients there."""

    arrays: Arrays
    dy: Outputs
    grads: Gradients


@dataclass
class AnalyticGradient:
    """The analytic gradient of one argument, and the round-off that is allowed in it."""

    name: str
    gradient: np.ndarray  # converted to float64
    eps: float  # the last bit of 1 in its original dtype
    base: float  # one number for all elements
    jitter: np.ndarray  # one number for each element
    lenient: float


@dataclass
class Point:
    """The point of the check: the arrays of a problem in float64, L there, and the gradients at points nearby."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    moves: list[Move]


def run_backward(problem: Problem, seed: int) -> tuple[Outputs, Gradients]:
    """Run forward and backward with a random dy; return dy and the gradients.

    Raises: GradientError for gradients that are not valid
    """
    arrays = problem.inputs
    for name in problem.differentiable:
        _require_finite(problem, f"the input {name}", arrays[name], seed)
    before = {name: value.copy() for name, value in arrays.items() if isinstance(value, np.ndarray)}
    y, cache = problem.run(arrays)
    _require_unchanged(problem, before, "forward")
    for i, one in enumerate(y):
        _require_finite(problem, "the output" if len(y) == 1 else f"output {i}", one, seed)
    _require_function(problem, y)
    dy = random_cotangent(y, seed)
    kept = tuple(one.copy() for one in dy)
    try:
        returned = problem.pull_back(dy, cache)
    except (ValueError, IndexError) as error:
        raise problem.error(
            f"the backward raised {type(error).__name__}: {error}\nlikely mistake: a factor that should be transposed, "
            f"or axes of the wrong argument; repeat with seed={seed}"
        ) from error
    grads = {name: None if grad is None else np.array(grad) for name, grad in returned.items()}
    _require_names(problem, grads)
    _require_unchanged(problem, before, "backward")
    if not all(np.array_equal(a, b) for a, b in zip(dy, kept, strict=True)):
        why = "a residual branch that uses dy too would then get a wrong dy"
        raise problem.error(f"backward changed dy in place; {why}")
    # The round-off of a gradient that is zero in theory may be as large as this gradient.
    least = max((largest(grad) for grad in grads.values() if grad is not None), default=0.0)
    try:
        repeated = problem.pull_back(dy, cache)
    except Exception as error:
        fix = "does backward change its cache in place?"
        raise problem.error(f"a second call of backward raised {type(error).__name__}: {error}; {fix}") from error
    for name, again in repeated.items():
        first = grads[name]
        if first is not None and again is not None and not same(first, np.asarray(again), problem.nondet, least):
            fix = f"does backward change its cache in place? {KNOWN}"
            raise problem.error(f"two calls of backward return different d{name}; {fix}")
    for name in problem.differentiable:
        grad = grads.get(name)
        if grad is not None:
            if grad.shape != (shape := arrays[name].shape):
                others = {other: arrays[other].shape for other in problem.differentiable if other != name}
                mistake = f"\nlikely mistake: {explain_shape(grad.shape, shape, others)}"
                raise problem.error(f"d{name} has shape {grad.shape}, but {name} has {shape}{mistake}")
            _require_finite(problem, f"d{name}", grad, seed)
        elif name not in problem.without:
            kind = "parameter" if name in problem.parameters else "argument"
            fix = f"; if {name} has no gradient, pass no_gradient=[{name!r}]" if kind == "argument" else ""
            raise problem.error(f"backward returned no gradient for the {kind} {name}{fix}")
    return dy, grads


def _require_unchanged(problem: Problem, before: Arrays, caller: str) -> None:
    for name, value in before.items():
        if not np.array_equal(problem.inputs[name], value, equal_nan=value.dtype.kind == "f"):
            raise problem.error(f"the input {name} was changed in place; use a new array in the {caller}")


def _require_function(problem: Problem, y: Outputs) -> None:
    """Two calls with the same arrays must return the same result."""
    again = problem.run(problem.inputs)[0]
    if len(y) != len(again) or not all(same(*pair, problem.nondet) for pair in zip(y, again)):
        fix = "pass a seeded np.random.Generator as an option (it is copied for every call), or create one inside"
        raise problem.error(f"two calls with the same arrays return different results; {fix}; {KNOWN}")


def same(one: np.ndarray, again: np.ndarray, nondet: float, least: float = 0.0) -> bool:
    """Whether two arrays are equal up to `nondet` and the round-off of terms of their size, or of size `least`."""
    if one.shape != again.shape or one.dtype.kind != again.dtype.kind:
        return False
    few = nondet + 64 * float(np.finfo(one.dtype).eps) * max(largest(one), least) if one.dtype.kind in "fc" else 0.0
    return np.array_equal(one, again, equal_nan=one.dtype.kind in "fc") or bool(np.all(np.abs(one - again) <= few))


def _require_names(problem: Problem, grads: Gradients) -> None:
    """Each gradient must belong to an argument; the gradient of an array of floats must be an array of floats."""
    for name, grad in grads.items():
        if grad is None or grad.dtype.kind == "f" or not is_float(problem.inputs[name]):
            continue
        if grad.dtype.kind == "c":
            raise problem.error(f"d{name} is complex, but {name} is real: do you mean the real part?")
        whole = "; is the array created like an array of integers, or is a comparison not multiplied by dy?"
        raise problem.error(
            f"d{name} holds {grad.dtype}, but {name} holds {problem.inputs[name].dtype}: a gradient must be floats"
            + (whole if grad.dtype.kind in "iub" else "")
        )


def random_cotangent(y: Outputs, seed: int) -> Outputs:
    """A random normal dy for each output, in the dtype of the output."""
    rng = np.random.default_rng([seed, 7])
    return tuple(
        np.asarray(rng.standard_normal(one.shape), dtype=one.dtype if one.dtype.kind == "f" else np.float64)
        for one in y
    )


def measure_round_off(
    problem: Problem, dy: Outputs, grads: Gradients, rtol: float = 0.0, atol: float = 0.0
) -> tuple[Point, list[AnalyticGradient], list[AnalyticGradient]]:
    """The point in float64, the gradients there with their round-off, and the gradients in low precision, if any."""
    exact = in_float64(problem.inputs)
    evaluate = problem.bind(exact)
    scalar = Scalar(evaluate, evaluate(), tuple(np.asarray(one, dtype=np.float64) for one in dy))
    low: list[AnalyticGradient] = []
    double = in_double(problem, exact, scalar.dy, grads)
    if double is not None:
        low, _ = with_round_off(problem, dy, grads, scalar.terms)
        problem, dy, grads = problem.with_changes(inputs=exact), scalar.dy, double
    found, moves = with_round_off(problem, dy, grads, scalar.terms)
    if problem.nondet:
        again = scalar.through([], [])
        scalar.noise += max(abs(again(0.0)) for _ in range(8))
    for analytic in low:
        analytic.base += problem.nondet / SAFETY
    for analytic in found:  # tolerances of the caller are added, without the factor SAFETY
        noise = problem.nondet + scalar.noise if problem.nondet else 0.0
        analytic.base += (atol + noise + rtol * largest(analytic.gradient)) / SAFETY
    return Point(problem, exact, scalar, moves), found, low


def with_round_off(
    problem: Problem, dy: Outputs, grads: Gradients, terms: float
) -> tuple[list[AnalyticGradient], list[Move]]:
    """Each gradient with its expected round-off, and the moves that measured it; `terms` is the largest |dy y|."""
    arrays = problem.inputs
    given = {name: grad for name, grad in grads.items() if grad is not None and name in problem.differentiable}
    jitter = {name: np.zeros(grad.shape) for name, grad in given.items()}
    moves = moved_by((2, 2, 8, 8, 32, 32), problem, arrays, dy, np.random.default_rng(len(grads)))
    for move in moves:
        for name, grad in given.items():
            with np.errstate(all="ignore"):
                change = np.abs(np.asarray(move.grads.get(name), np.float64) - np.asarray(grad, np.float64))
            jitter[name] = np.fmax(jitter[name], change - problem.nondet)
    longest = max((max(x.shape, default=1) for x in arrays.values() if isinstance(x, np.ndarray)), default=1)
    sizes = {name: largest(grad.astype(np.float64)) for name, grad in given.items()}
    # A gradient that is zero in theory (a key's bias) consists of the round-off of terms that cancel.
    least = 0.02 * max(sizes.values(), default=0.0)
    found = []
    for name, grad in given.items():
        eps = float(np.finfo(grad.dtype).eps)
        unit = eps * longest**0.5
        # Terms of the size |dy y / x| that cancel leave this much round-off, possibly the same in all elements.
        natural = terms / (min(1.0, rms(np.asarray(arrays[name], np.float64))) or 1.0) if grad.size else 0.0
        base = unit * max(sizes[name], least)
        lenient = 0.25 * unit * natural
        found.append(AnalyticGradient(name, np.asarray(grad, np.float64), eps, base, jitter[name], lenient))
    return found, moves


def in_double(problem: Problem, exact: Arrays, dy: Outputs, grads: Gradients) -> Gradients | None:
    """The gradients of the same backward in float64; None if the inputs are float64 already, or float64 fails."""
    if all(np.array_equal(exact[name].dtype, problem.inputs[name].dtype) for name in problem.differentiable):
        return None
    try:
        again = problem.gradients(exact, dy)
    except (TypeError, ValueError):  # the code supports only one dtype
        return None
    fits = all(
        grad is None or ((one := np.asarray(again.get(name))).shape, one.dtype.kind) == (grad.shape, "f")
        for name, grad in grads.items()
    )
    return {name: None if grad is None else np.array(grad) for name, grad in again.items()} if fits else None


def moved_by(
    ulps: Iterable[int], problem: Problem, arrays: Arrays, dy: Outputs, rng: np.random.Generator
) -> list[Move]:
    """Run the backward with arrays moved by up to `ulps` last bits, and dy moved by two; skip runs that fail."""
    moves = []
    for most in ulps:
        moved = {name: _jittered(value, most, rng) if is_float(value) else value for name, value in arrays.items()}
        moved |= {name: np.where(mask, arrays[name], moved[name]) for name, mask in problem.skip.items()}
        dy_moved = tuple(_jittered(one, 2, rng) for one in dy)
        with np.errstate(all="ignore"), contextlib.suppress(Exception):  # a move may leave the domain
            grads = problem.gradients(moved, dy_moved)
            given = [(arrays[name], grad) for name, grad in grads.items() if grad is not None]
            if all((grad.shape, grad.dtype.kind) == (x.shape, "f") for x, grad in given):
                moves.append(Move(moved, dy_moved, grads))
    return moves


def _jittered(value: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    ulps = rng.integers(-most, most + 1, value.shape).astype(value.dtype)
    return value + ulps * np.spacing(np.abs(value))


def _require_finite(problem: Problem, what: str, value: np.ndarray, seed: int) -> None:
    bad = ~np.isfinite(value)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    mistake = ""
    if not what.startswith("the input"):
        mistake = "\nlikely mistake: 0/0, log(0), inf - inf, or the exponential of a large number, at this index"
        kinds = {value.dtype.kind for value in problem.inputs.values() if isinstance(value, np.ndarray)}
        if "b" in kinds:
            mistake += "; a row whose mask is all False must give zeros, and the backward must apply the mask too"
        elif kinds & set("iu"):
            mistake += "; ignored elements must be left out, not multiplied by 0: 0 times infinity is NaN"
    raise problem.error(
        f"{what} holds {value[index]} at index {index} ({int(bad.sum())} of {value.size} elements are NaN or infinite)"
        f"{mistake}; repeat with seed={seed}"
    )


def explain_shape(
    got: tuple[int, ...], expected: tuple[int, ...], others: Mapping[str, tuple[int, ...]] | None = None
) -> str:
    """The likely mistake if a gradient has a wrong shape; `others` are the shapes of the other arguments."""
    for other, shape in (others or {}).items():
        if shape == got:
            return f"this is the shape of {other}: are the arguments, or the gradients, in the right order?"
    extra = len(got) - len(expected)
    if extra > 0 and got[extra:] == expected:
        flat = ", or a reshape to the shape of the argument" if set(got[:extra]) == {1} else ""
        return f"the sum over the batch axes {tuple(range(extra))} is missing{flat}"
    if len(got) == len(expected) and sorted(got) == sorted(expected):
        return "transposed"
    if len(got) == len(expected) and all(a == b or b == 1 for a, b in zip(got, expected)):
        axes = tuple(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
        return (
            f"the sum over axes {axes}, along which the argument was broadcast, is missing; or a sum without "
            "keepdims=True was broadcast"
        )
    if int(np.prod(got)) == int(np.prod(expected)):
        return "the right number of elements: a reshape is missing"
    if extra < 0:
        return "summed over too many axes, or not broadcast back over the axes that the forward summed"
    return "a gradient must have the shape of its argument"


def tolerance(error: Any, round_off: Any, floor: float = 0.0) -> Any:
    """The allowed difference between a gradient and a derivative that is known up to `error`."""
    return SAFETY * (error + round_off) + floor


def floor_of(eps: float, *terms: float) -> float:
    """The round-off of a sum of terms of this size."""
    return 32 * eps * max(terms)


def jumps(jitter: Any, size: float) -> Any:
    """Where the jitter is large compared with the size of the gradient."""
    return jitter > JUMP * size


def judge(
    found: ArgumentReport, analytic: AnalyticGradient, compared: np.ndarray, error: Any, jitter: np.ndarray,
    floor: float, lost: Any = 0.0,
) -> None:
    """Mark the compared elements whose difference from the derivative is larger than the tolerance."""
    found.doubt = tolerance(error, jitter, floor)
    found.resolution = tolerance(error, analytic.base + jitter, floor) + lost
    found.wrong = compared & ~(np.abs(found.analytic - found.numeric) <= found.resolution) & ~found.kinks


class RoundOff:
    """The scatter of gradient minus derivative at moved points; `derivative_at(move)` computes the derivatives."""

    def __init__(self, point: Point, name: str, derivative_at: Callable[[Move], DerivativeOf]) -> None:
        self.point, self.name, self.derivative_at, self.calls = point, name, derivative_at, 0
        self.known: dict[tuple[int, ...], list[tuple[Move, DerivativeOf]]] = {}

    def __call__(self, elements: np.ndarray, ulps: tuple[int, ...] = FURTHER) -> np.ndarray:
        """The scatter for each of these elements, over all moves that changed the element; infinite if unknown."""
        if not elements.size:  # avoid the moves, which run the backward
            return np.zeros(0)
        x, moves = self.point.exact[self.name], self._moves(ulps)
        off = np.full((len(moves) + 1, elements.size), np.nan)
        for k, (move, derivative) in enumerate(moves):
            grad = move.grads.get(self.name)
            if grad is None:
                continue
            moved = (move.arrays[self.name] != x).reshape(-1)[elements]
            for n in np.flatnonzero(moved):
                value, calls = derivative(int(elements[n]))
                off[k, n] = float(grad.reshape(-1)[elements[n]]) - value
                self.calls += calls
        spread = np.fmax.reduce(off) - np.fmin.reduce(off) - 2 * self.point.problem.nondet
        return np.where(np.isfinite(spread), np.maximum(spread, 0.0), np.inf)

    def _moves(self, ulps: tuple[int, ...]) -> list[tuple[Move, DerivativeOf]]:
        near = self.point.moves
        if ulps not in self.known and near:
            rng = np.random.default_rng(len(near[0].arrays))
            further = moved_by(ulps, self.point.problem, near[0].arrays, near[0].dy, rng)
            self.known[ulps] = []
            for move in [*near, *further]:
                with contextlib.suppress(Exception):  # the move may have left the domain
                    self.known[ulps].append((move, self.derivative_at(move)))
        return self.known.get(ulps, [])


def compare_with_float64(report: ArgumentReport, low: AnalyticGradient) -> None:
    """Compare the gradient in low precision with the gradient in float64; afterwards the report holds the first."""
    off = np.abs(low.gradient - report.analytic)
    base = low.base + low.lenient
    if off.size >= MANY:
        base = min(base, max(4 * float(np.quantile(off, 0.9)), low.eps * largest(low.gradient)))
    allowed = tolerance(0.0, base + low.jitter)
    too_far = ~(off <= allowed) & ~report.kinks
    only_here = too_far & ~report.wrong
    # For an element without a derivative, the gradient in float64 is the reference.
    report.numeric = np.where(only_here & np.isnan(report.numeric), report.analytic, report.numeric)
    report.analytic, report.resolution = low.gradient, report.resolution + allowed
    report.wrong = report.wrong | too_far
    if only_here.any() and not (report.wrong & ~only_here).any():
        report.notes.append(f"d{report.name}: the same backward is right in float64")


def mark_unresolved(
    scalar: Scalar, found: list[AnalyticGradient], reports: dict[str, ArgumentReport], rtol: float, atol: float
) -> None:
    """Set the size of each gradient, and mark the elements whose derivative is known to too few digits."""
    of_all = max((report.largest for report in reports.values()), default=0.0)
    for analytic in found:
        report = reports[analytic.name]
        report.size = max(report.largest, 1e-3 * of_all, 1e-6 * scalar.terms) or 1.0
        vague = report.doubt > max(RESOLVED, rtol, 100 * analytic.eps, 100 * scalar.eps) * report.size + atol
        report.unresolved = vague & ~report.wrong & ~report.kinks & np.isfinite(report.numeric)
