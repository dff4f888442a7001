"""The tolerance: what round-off is in the analytic gradients, and how far each element may be off.

dy is drawn at random for every output: a dy of ones would hide a gradient that sums to zero, such as that of a softmax.
Before any number is compared, the gradients must be in order: no NaN, inputs and dy unchanged, the same result when the
backward is called twice, and each gradient in the shape of its argument.

Then every element may differ from the derivative by

    tolerance = 8 (error of the derivative + round-off of the gradient) + floor

    error        of a difference, which comes with an estimate (`line`); 0 for a complex step
    floor        32 last bits of the terms |dy y|: the round-off of the sum L, which no derivative of L can see through

The round-off of an unknown function cannot be derived, so it is measured:

    jitter       for each element: its change when inputs and dy are moved by a few last bits
    base         for all: eps sqrt(K) max|dx|, for K terms of a sum rounded each on its own; K is the longest axis of
                 any input; and the caller's rtol and atol
    lenient      eps sqrt(K) |dy y| / |x|, for large terms that cancel; allowed in low precision

Two kinds of wrong gradients have a jitter that would excuse the error. A gradient that is wrong at a single point, at
zero or where two inputs are equal, jumps as soon as the inputs move. And where a function is a stair, as 1 - p is for p
near 1, a few last bits move nothing, so the round-off looks smaller than it is. So for an element in doubt `RoundOff`
compares gradient and derivative again, at places near and not so near. There a right gradient minus the derivative
scatters as the round-off of both. A wrong one is off by the same number everywhere, or is right everywhere but here:
next to no scatter.

A gradient in float32 or float16 must be close to what the same backward returns in float64, which differences and
complex steps have checked to the last digits (`hold_to_float64`). The tolerance is the round-off of the dtype, measured
and, in an array of many elements, no more than most of them need, so one wrong element of 100,000 is seen.

Two answers of the same backward, at other layouts or after other calls, have looser limits of their own (`robustness`).
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.line import Outputs, Scalar, largest, rms
from numpy_attention.gradcheck.problem import Gradients, Problem, in_float64, is_float
from numpy_attention.gradcheck.report import ArgumentReport, GradientError
from numpy_attention.gradcheck.trees import Arrays

SAFETY = 8.0  # errors and round-off are estimates: a right gradient is off by at most so many of them
JUMP = 1e-9  # a jitter that is a larger share of the gradient is measured again
RESOLVED = 1e-4  # of the gradient's size: an element whose derivative is known less well is not called right
MANY = 64  # elements of an array that show what most of them need

FURTHER = (2**16, 2**16, 2**26, 2**26)  # last bits
FAR = (2**38, 2**38, 2**41, 2**41)  # for what is as small as round-off can be, and may lie on a long stair
FARTHEST = (2**46,) * 8  # for a longer one; an error moves too, so here the scatter must be as large

DerivativeOf = Callable[[int], tuple[float, int]]  # of one element, and the calls that it took


class Move(NamedTuple):
    """The gradients when inputs and dy are moved by a few last bits."""

    arrays: Arrays
    dy: Outputs
    grads: Gradients


@dataclass
class AnalyticGradient:
    """The analytic gradient of one argument, and the round-off to allow in it."""

    name: str
    gradient: np.ndarray  # in float64, whatever it came in
    eps: float  # the last bit of a 1 in the dtype it came in
    base: float  # for all elements
    jitter: np.ndarray  # for each
    lenient: float


@dataclass
class Point:
    """Where a problem is checked: its arrays in float64, L there, and the gradients at arrays close by."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    moves: list[Move]


def run_backward(problem: Problem, seed: int) -> tuple[Outputs, Gradients]:
    """Run forward and backward with a random dy; return dy and the gradients.

    Raises: GradientError for gradients that are not in order
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
        raise _refusal(
            problem, f"the backward raised {type(error).__name__}: {error}\nlikely mistake: a factor that should be "
            f"transposed, or axes of the wrong argument; repeat with seed={seed}"
        ) from error
    grads = {name: None if grad is None else np.array(grad) for name, grad in returned.items()}
    _require_names(problem, grads)
    _require_unchanged(problem, before, "backward")
    if not all(np.array_equal(a, b) for a, b in zip(dy, kept, strict=True)):
        raise _refusal(
            problem, "backward changed dy in place; a residual branch that reads the same dy would then read "
            "something else"
        )
    for name, again in problem.pull_back(dy, cache).items():
        first = grads[name]
        if first is not None and again is not None and not _same(first, np.asarray(again)):
            raise _refusal(
                problem, f"backward called twice gives two different d{name}; does it change its cache in place?"
            )
    for name in problem.differentiable:
        grad = grads.get(name)
        if grad is not None:
            _require_shape(problem, name, grad)
            _require_finite(problem, f"d{name}", grad, seed)
        elif name not in problem.without:
            kind = "parameter" if name in problem.parameters else "argument"
            fix = f"; if it has none, say so: no_gradient=[{name!r}]" if kind == "argument" else ""
            raise _refusal(problem, f"backward returned no gradient for the {kind} {name}{fix}")
    return dy, grads


def _require_unchanged(problem: Problem, before: Arrays, who: str) -> None:
    for name, value in before.items():
        if not np.array_equal(problem.inputs[name], value, equal_nan=value.dtype.kind == "f"):
            raise _refusal(problem, f"the input {name} was changed in place; work on a new array in the {who}")


def _require_function(problem: Problem, y: Outputs) -> None:
    """The same arrays must give the same result."""
    again = problem.run(problem.inputs)[0]
    if len(y) != len(again) or not all(map(_same, y, again)):
        fix = "pass a seeded np.random.Generator as an option, which is copied for every call, or seed one inside"
        raise _refusal(problem, f"two calls with the same arrays give different results: it is no function; {fix}")


def _same(one: np.ndarray, again: np.ndarray) -> bool:
    """Equal up to the round-off of a sum in another order; NaN is refused elsewhere."""
    if one.shape != again.shape or one.dtype.kind != again.dtype.kind:
        return False
    few = 64 * float(np.finfo(one.dtype).eps) * largest(one) if one.dtype.kind in "fc" else 0.0
    return np.array_equal(one, again, equal_nan=one.dtype.kind in "fc") or bool(np.all(np.abs(one - again) <= few))


def _require_names(problem: Problem, grads: Gradients) -> None:
    """Each gradient must belong to an argument, and be of real floats where the argument is."""
    known = ", ".join(problem.differentiable)
    for name, grad in grads.items():
        if name not in problem.inputs:
            raise _refusal(
                problem, f"backward returned a gradient called {name!r}; gradients go by the arguments: {known}"
            )
        if grad is None or grad.dtype.kind == "f" or not is_float(problem.inputs[name]):
            continue
        if grad.dtype.kind == "c":
            raise _refusal(problem, f"d{name} is complex, but {name} is real: take the real part, if that is meant")
        whole = "; is it made like an array of integers, or a comparison without its dy?"
        raise _refusal(
            problem, f"d{name} holds {grad.dtype}, but {name} holds {problem.inputs[name].dtype}: a gradient is made "
            f"of floats{whole if grad.dtype.kind in 'iub' else ''}"
        )


def random_cotangent(y: Outputs, seed: int) -> Outputs:
    """A normal dy for each output, in its dtype."""
    rng = np.random.default_rng([seed, 7])
    return tuple(
        np.asarray(rng.standard_normal(one.shape), dtype=one.dtype if one.dtype.kind == "f" else np.float64)
        for one in y
    )


def measure_round_off(
    problem: Problem, dy: Outputs, grads: Gradients, rtol: float = 0.0, atol: float = 0.0
) -> tuple[Point, list[AnalyticGradient], list[AnalyticGradient]]:
    """The point in float64; the gradients there with their round-off; and those in a lower precision, if any."""
    exact = in_float64(problem.inputs)
    evaluate = problem.bind(exact)
    scalar = Scalar(evaluate, evaluate(), tuple(np.asarray(one, dtype=np.float64) for one in dy))
    low: list[AnalyticGradient] = []
    double = in_double(problem, exact, scalar.dy, grads)
    if double is not None:
        low, _ = with_round_off(problem, dy, grads, scalar.terms)
        problem, dy, grads = problem.with_changes(inputs=exact), scalar.dy, double
    found, moves = with_round_off(problem, dy, grads, scalar.terms)
    for analytic in found:  # the caller's tolerances are added to ours, and not multiplied
        analytic.base += (atol + rtol * largest(analytic.gradient)) / SAFETY
    return Point(problem, exact, scalar, moves), found, low


def with_round_off(
    problem: Problem, dy: Outputs, grads: Gradients, terms: float
) -> tuple[list[AnalyticGradient], list[Move]]:
    """Each gradient with the round-off to expect in it, and the moves by which that was measured; `terms` is |dy y|."""
    arrays = problem.inputs
    given = {name: grad for name, grad in grads.items() if grad is not None and name in problem.differentiable}
    jitter = {name: np.zeros(grad.shape) for name, grad in given.items()}
    moves = moved_by((2, 2, 8, 8, 32, 32), problem, arrays, dy, np.random.default_rng(len(grads)))
    for move in moves:
        for name, grad in given.items():
            with np.errstate(all="ignore"):
                change = np.abs(np.asarray(move.grads.get(name), np.float64) - np.asarray(grad, np.float64))
            jitter[name] = np.fmax(jitter[name], change)
    longest = max((max(x.shape, default=1) for x in arrays.values() if isinstance(x, np.ndarray)), default=1)
    sizes = {name: largest(grad.astype(np.float64)) for name, grad in given.items()}
    # A gradient that is zero in theory (a key's bias) is left with the round-off of the terms that cancelled in it.
    least = 0.02 * max(sizes.values(), default=0.0)
    found = []
    for name, grad in given.items():
        eps = float(np.finfo(grad.dtype).eps)
        unit = eps * longest**0.5
        # Terms of the size |dy y / x| that cancel leave this much, and all elements may be rounded alike.
        natural = terms / (min(1.0, rms(np.asarray(arrays[name], np.float64))) or 1.0) if grad.size else 0.0
        base = unit * max(sizes[name], least)
        lenient = 0.25 * unit * natural
        found.append(AnalyticGradient(name, np.asarray(grad, np.float64), eps, base, jitter[name], lenient))
    return found, moves


def in_double(problem: Problem, exact: Arrays, dy: Outputs, grads: Gradients) -> Gradients | None:
    """The gradients of the same backward in float64; None if they are in float64 already, or it cannot run there."""
    if all(np.array_equal(exact[name].dtype, problem.inputs[name].dtype) for name in problem.differentiable):
        return None
    try:
        again = problem.gradients(exact, dy)
    except (TypeError, ValueError):  # written for one dtype only
        return None
    fits = all(
        grad is None or ((one := np.asarray(again.get(name))).shape, one.dtype.kind) == (grad.shape, "f")
        for name, grad in grads.items()
    )
    return {name: None if grad is None else np.array(grad) for name, grad in again.items()} if fits else None


def moved_by(
    ulps: Iterable[int], problem: Problem, arrays: Arrays, dy: Outputs, rng: np.random.Generator
) -> list[Move]:
    """Run the backward at arrays moved by up to `ulps` last bits, and dy by two; without the runs that fail."""
    moves = []
    for most in ulps:
        moved = {name: _jittered(value, most, rng) if is_float(value) else value for name, value in arrays.items()}
        dy_moved = tuple(_jittered(one, 2, rng) for one in dy)
        with np.errstate(all="ignore"), contextlib.suppress(Exception):  # a last bit may leave the domain
            grads = problem.gradients(moved, dy_moved)
            given = [(arrays[name], grad) for name, grad in grads.items() if grad is not None]
            if all((grad.shape, grad.dtype.kind) == (x.shape, "f") for x, grad in given):
                moves.append(Move(moved, dy_moved, grads))
    return moves


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
    raise _refusal(
        problem, f"{what} holds {value[index]} at index {index} ({int(bad.sum())} of {value.size} elements are NaN or "
        f"infinite){mistake}; repeat with seed={seed}"
    )


def _require_shape(problem: Problem, name: str, grad: np.ndarray) -> None:
    shapes = {other: problem.inputs[other].shape for other in problem.differentiable}
    expected = shapes.pop(name)
    if grad.shape != expected:
        raise _refusal(
            problem, f"d{name} has shape {grad.shape}, but {name} has {expected}\n"
            f"likely mistake: {explain_shape(grad.shape, expected, shapes)}"
        )


def explain_shape(
    got: tuple[int, ...], expected: tuple[int, ...], others: Mapping[str, tuple[int, ...]] | None = None
) -> str:
    """The likely mistake behind a gradient of another shape; `others` are the shapes of the other arguments."""
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
        return "summed over too many axes, or not spread back over those that the forward summed"
    return "a gradient has the shape of its argument"


def _refusal(problem: Problem, text: str) -> GradientError:
    return GradientError(f"gradcheck {problem.name}: {text}")


def tolerance(error: Any, round_off: Any, floor: float = 0.0) -> Any:
    """How far a gradient may be off a derivative that is known up to `error`."""
    return SAFETY * (error + round_off) + floor


def floor_of(eps: float, *terms: float) -> float:
    """The round-off of a sum of terms of this size."""
    return 32 * eps * max(terms)


def jumps(jitter: Any, size: float) -> Any:
    """Where the jitter is large compared with the size of the gradient."""
    return jitter > JUMP * size


def judge(
    found: ArgumentReport, analytic: AnalyticGradient, looked: np.ndarray, error: Any, jitter: np.ndarray, floor: float,
    lost: Any = 0.0,
) -> None:
    """Mark the elements, of those that were looked at, that are further from the derivative than the tolerance."""
    found.doubt = tolerance(error, jitter, floor)
    found.resolution = tolerance(error, analytic.base + jitter, floor) + lost
    found.wrong = looked & ~(np.abs(found.analytic - found.numeric) <= found.resolution) & ~found.kinks


class RoundOff:
    """How much gradient minus derivative scatters around the point; `derivative_at` a move gives derivatives there."""

    def __init__(self, point: Point, derivative_at: Callable[[Move], DerivativeOf | None]) -> None:
        self.point, self.derivative_at, self.calls = point, derivative_at, 0
        self.known: dict[tuple[int, ...], list[tuple[Move, DerivativeOf | None]]] = {}

    def __call__(self, analytic: AnalyticGradient, elements: np.ndarray, ulps: tuple[int, ...] = FURTHER) -> np.ndarray:
        """The spread for each of these elements, over the moves that moved it; infinite where it is unknown."""
        if not elements.size:  # the moves run the backward
            return np.zeros(0)
        x, moves = self.point.exact[analytic.name], self._moves(ulps)
        off = np.full((len(moves) + 1, elements.size), np.nan)
        for k, (move, derivative) in enumerate(moves):
            grad = move.grads.get(analytic.name)
            if grad is None or derivative is None:
                continue
            moved = (move.arrays[analytic.name] != x).reshape(-1)[elements]
            for n in np.flatnonzero(moved):
                value, calls = derivative(int(elements[n]))
                off[k, n] = float(grad.reshape(-1)[elements[n]]) - value
                self.calls += calls
        spread: np.ndarray = np.fmax.reduce(off) - np.fmin.reduce(off)
        return np.where(np.isfinite(spread), spread, np.inf)

    def _moves(self, ulps: tuple[int, ...]) -> list[tuple[Move, DerivativeOf | None]]:
        near = self.point.moves
        if ulps not in self.known and near:
            rng = np.random.default_rng(len(near[0].arrays))
            further = moved_by(ulps, self.point.problem, near[0].arrays, near[0].dy, rng)
            self.known[ulps] = [(move, self.derivative_at(move)) for move in [*near, *further]]
        return self.known.get(ulps, [])


def hold_to_float64(report: ArgumentReport, low: AnalyticGradient) -> None:
    """Compare the gradient in its own dtype with the one in float64; the report then shows the former."""
    off = np.abs(low.gradient - report.analytic)
    base = low.base + low.lenient
    if off.size >= MANY:
        base = min(base, max(4 * float(np.quantile(off, 0.9)), low.eps * largest(low.gradient)))
    allowed = tolerance(0.0, base + low.jitter)
    too_far = ~(off <= allowed) & ~report.kinks
    only_here = too_far & ~report.wrong
    # Where no derivative was taken of an element, float64 is the reference.
    report.numeric = np.where(only_here & np.isnan(report.numeric), report.analytic, report.numeric)
    report.analytic, report.resolution = low.gradient, report.resolution + allowed
    report.wrong = report.wrong | too_far
    if only_here.any() and not (report.wrong & ~only_here).any():
        report.notes.append(f"d{report.name}: the same backward is right in float64")


def mark_unresolved(
    scalar: Scalar, found: list[AnalyticGradient], reports: dict[str, ArgumentReport], rtol: float, atol: float
) -> None:
    """Set the size to which errors are relative, and mark the elements whose derivative is known to too few digits."""
    of_all = max((report.largest for report in reports.values()), default=0.0)
    for analytic in found:
        report = reports[analytic.name]
        report.size = max(report.largest, 1e-3 * of_all, 1e-6 * scalar.terms) or 1.0
        vague = report.doubt > max(RESOLVED, rtol, 100 * analytic.eps, 100 * scalar.eps) * report.size + atol
        report.unresolved = vague & ~report.wrong & ~report.kinks & np.isfinite(report.numeric)
