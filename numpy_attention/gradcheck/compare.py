"""Compare a gradient with a derivative: element by element, or a large array along random directions.

    |gradient - derivative|  <=  8 (error of the derivative + round-off of both) + rtol, atol, nondet of the caller

The derivative is a complex step if differences confirm it, else a difference with its estimated error (`derivative`).
The round-off is a few last bits of the gradient and of the terms of its sum: enough for most right gradients. Where a
gradient differs by more, the round-off of both is measured:

    scatter    the spread of (gradient - derivative) over points nearby, where inputs and dy moved a little

For a right gradient, this difference is round-off at every point, so it scatters by as much as it is large. For a wrong
gradient, it hardly scatters: it is the same number at every point, or zero everywhere except at the point itself.

A gradient in float32 must be close to the gradient of the same backward in float64, which is compared to the last
digits (`compare_with_float64`). In an array of many elements the tolerance is only as large as most elements need, so
one wrong element of 100,000 is found.

Large arrays: one derivative along a random direction v tests all elements at once: it must be sum(dx * v). An error e
in one element changes this sum by e |v_i|, in an array of any size, and no v_i is small. If the sum is wrong, the
derivative along the left half of v shows which half is wrong: 20 halvings find one element among a million.
"""

import contextlib
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.corners import corner_in_words, slopes_around
from numpy_attention.gradcheck.derivative import (
    EPS,
    GOOD,
    RESOLVED,
    SAFETY,
    Differences,
    Exact,
    NoComplexStep,
    Scalar,
    measured_noise,
    quick,
    refined,
    rms,
    sizes,
)
from numpy_attention.gradcheck.problem import Gradients, Outputs, Problem, in_float64, largest
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.trees import Arrays

ZERO = 2.0**22  # last bits: a derivative of this error, and no digits, counts as zero
ROUNDED = 1e-2  # relative to the derivative: round-off is never larger
TIGHT = 1e-8  # relative: a gradient that differs by more is compared with a better derivative
JUMP = 1e-9  # relative to the gradient: a larger change over a few last bits is a jump, as at a corner
NOISE = 1000.0  # if a function differs from run to run, differences may have an error of this multiple
FEW_BITS = (2, 2, 8, 8, 32, 32)
MORE_BITS = (2**16, 2**26)
# Up to 0.05 %, and 1.5 %, of a number: some functions change only in long steps, for example 1 - p for p near 1.
LONG = (2**38, 2**41)
LONGEST = (2**46, 2**46, 2**46, 2**46)

ENOUGH = 6  # wrong elements; the others are then not looked at again
MANY = 64  # with so many elements, the tolerance that most of them need can be estimated
EXHAUSTIVE = 1500  # larger arrays are compared along directions
DIRECTIONS = 3
FOUND = 12  # so many wrong elements of a large array are enough to show a pattern
SAMPLE = 48  # random elements of a large array that are compared one by one if many are wrong
NOT_ANALYTIC = ("abs", "absolute", "var", "std", "norm", "sign")  # functions that a complex step does not pass
CORNERS = 64  # at most so many elements of a large array are compared one by one at corners


class Refuted(Exception):
    """The complex step is not the derivative; the message gives the reason."""


class Move(NamedTuple):
    """A point nearby: inputs and dy, moved by some last bits, and outputs and gradients there."""

    arrays: Arrays
    dy: Outputs
    y: Outputs
    grads: Gradients


@dataclass
class AnalyticGradient:
    """The gradient of one argument, and the round-off that is usual for its dtype."""

    name: str
    gradient: np.ndarray  # converted to float64
    unit: float  # relative: the last bit of 1 in its dtype, times sqrt(K) for sums of K terms
    allowed: float = 0.0  # absolute: rtol, atol and nondet of the caller


@dataclass
class Point:
    """The point of the check: the arrays of a problem in float64, L there, and the gradients of its backward."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    gradients: list[AnalyticGradient]
    near: dict[tuple[int, ...], list[Move]] = field(default_factory=dict)
    jitters: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def largest(self) -> float:
        """The largest element of all gradients."""
        return max((largest(one.gradient) for one in self.gradients), default=0.0)

    def moves(self, bits: tuple[int, ...] = FEW_BITS) -> list[Move]:
        """Points nearby; each call returns the same points."""
        if bits not in self.near:
            self.near[bits] = moved_by(bits, self.problem, self.exact, self.scalar.dy)
        return self.near[bits]

    def jitter(self, analytic: AnalyticGradient) -> np.ndarray:
        """The largest change of each element of a gradient when inputs and dy move by a few last bits; flattened."""
        if analytic.name not in self.jitters:
            grads = [np.asarray(move.grads[analytic.name], np.float64) for move in self.moves()]
            changes = [np.abs(grad - analytic.gradient).reshape(-1) for grad in grads]
            self.jitters[analytic.name] = np.max([np.zeros(analytic.gradient.size), *changes], axis=0)
        return self.jitters[analytic.name]


def moved_by(bits: Sequence[int], problem: Problem, arrays: Arrays, dy: Outputs) -> list[Move]:
    """Run the backward with arrays moved by up to so many last bits, and dy moved by two; skip runs that fail."""
    rng, moves = np.random.default_rng(len(arrays)), list[Move]()

    def moved(x: np.ndarray, most: int) -> np.ndarray:
        return x + rng.integers(-most, most + 1, x.shape).astype(x.dtype) * np.spacing(np.abs(x))

    for most in bits:
        with np.errstate(all="ignore"), contextlib.suppress(Exception):  # a move may leave the domain
            near = {name: np.where(problem.kept(name), moved(arrays[name], most), arrays[name])
                    for name in problem.with_gradient}
            near_dy = tuple(moved(one, 2) for one in dy)
            y, cache = problem.run(arrays | near)
            grads = problem.pull_back(near_dy, cache)
            if all(np.shape(np.asarray(grads[name])) == x.shape for name, x in near.items()):
                moves.append(Move(arrays | near, near_dy, y, grads))
    return moves


def at_float64(
    problem: Problem, dy: Outputs, grads: Gradients, rtol: float, atol: float, rng: np.random.Generator
) -> tuple[Point, list[AnalyticGradient]]:
    """The point in float64 with the gradients there; and the gradients in lower precision, if any."""
    exact, low = in_float64(problem.inputs), list[AnalyticGradient]()
    evaluate = problem.bind(exact)
    scalar = Scalar(evaluate, evaluate(), tuple(np.asarray(one, dtype=np.float64) for one in dy))
    double = _in_double(problem, exact, scalar.dy, grads)
    if double is not None:
        low = _analytic(problem, grads)
        problem, grads = problem.with_changes(inputs=exact), double
    point = Point(problem, exact, scalar, _analytic(problem, grads))
    scalar.least_noise = _noise_of(point, rng)
    for one in low + point.gradients:
        noise = problem.nondet + scalar.least_noise if problem.nondet else 0.0
        one.allowed = atol + rtol * largest(one.gradient) + noise
    return point, low


def _in_double(problem: Problem, exact: Arrays, dy: Outputs, grads: Gradients) -> Gradients | None:
    """The gradients of the same backward in float64; None if the inputs are float64 already, or float64 fails."""
    if all(problem.inputs[name].dtype == np.float64 for name in problem.differentiable):
        return None
    try:
        again = problem.gradients(exact, dy)
    except Exception:  # the code supports only one dtype
        return None
    found = {name: grad if grad is None else np.array(again.get(name)) for name, grad in grads.items()}
    fits = all(
        grad is None or (grad.shape == one.shape and one.dtype.kind == "f")
        for grad, one in zip(grads.values(), found.values()) if one is not None
    )
    return found if fits else None


def _analytic(problem: Problem, grads: Gradients) -> list[AnalyticGradient]:
    arrays = [problem.inputs[name] for name in problem.differentiable]
    terms = max((max(x.shape, default=1) for x in arrays), default=1)
    rough = max(float(np.finfo(x.dtype).eps) for x in arrays)  # a gradient in float64 may come from float32
    given = {name: grad for name, grad in grads.items() if grad is not None and name in problem.differentiable}
    return [
        AnalyticGradient(name, np.asarray(grad, np.float64), max(rough, float(np.finfo(grad.dtype).eps)) * terms**0.5)
        for name, grad in given.items()
    ]


def _noise_of(point: Point, rng: np.random.Generator) -> float:
    """The round-off in L of a function that differs from run to run, or that uses a lower precision than float64.

    The second does not change if the arrays move by a relative 2^-40, but changes if they move by 2^-9.
    """
    if point.problem.nondet:
        again = point.scalar.through([], [])
        return max(abs(again(0.0)) for _ in range(8))
    arrays = {name: point.exact[name] for name in point.problem.with_gradient}
    signs = {name: rng.choice([-1.0, 1.0], x.shape) * rng.uniform(1.0, 1.5, x.shape) for name, x in arrays.items()}
    v = [sizes(x) * signs[name] * point.problem.kept(name) for name, x in arrays.items()]
    line = point.scalar.through(arrays.values(), v)
    return measured_noise(line, 2.0**-20) if line(2.0**-40) == 0.0 != line(2.0**-9) else 0.0


def reference_at(
    point: Point, some: dict[str, np.ndarray], reference: str, exhaustive: int, rng: np.random.Generator
) -> tuple[Exact | None, str]:
    """The complex step, if differences confirm it; or None and the reason why not.

    Along one random direction through all arrays, both must find the same derivative. All elements change by the same
    amount or, if no single step suits all, each in proportion to its size.
    """
    if reference == "differences":
        return None, ""
    try:
        exact = Exact(point.problem, point.exact, point.scalar.y, point.scalar.dy)
    except NoComplexStep as error:
        if reference == "complex":
            raise point.problem.error(f"no complex step: {error}; use reference='both'") from None
        return None, str(error)
    if reference == "complex":
        return exact, ""
    corners = {one.name: at_corners(point, one) for one in point.gradients if one.gradient.size > exhaustive}
    why = "have too large an error"
    for size_of in (lambda x: np.full(x.shape, rms(x) or 1.0), sizes):
        v = {}
        for name, marked in some.items():
            x = point.exact[name]
            moving = (marked & np.logical_not(corners.get(name, False))).reshape(x.shape)
            v[name] = size_of(x) * rng.choice([-1.0, 1.0], x.shape) * rng.uniform(1.0, 1.5, x.shape) * moving
        try:
            derivative, known_to = exact.through(v)
        except Exception as failure:  # the function takes complex arrays, but not this step
            return None, f"{type(failure).__name__}: {failure}"
        # L hardly changes with the scores of a saturated softmax: then its last bits are enough.
        terms = max(known_to / (4 * EPS), 1e-6 * point.scalar.last_bit / EPS)
        line = point.scalar.through((point.exact[name] for name in v), v.values())
        for way in (quick, refined):
            with np.errstate(all="ignore"):
                found = way(line, 2.0**-11)
            known = found.error <= (ROUNDED if point.problem.nondet else 1e-6) * terms
            if known and abs(found.value - derivative) <= 2 * found.error + 1e-9 * terms:
                return exact, ""
            why = "find another derivative" if known and way is refined else why
    return None, f"differences {why} along a random direction{_not_analytic(point.problem)}"


def _not_analytic(problem: Problem) -> str:
    """The functions without a complex step that the checked function, or a function of its module, calls by name."""
    op: Any = inspect.unwrap(getattr(problem, "op", problem.call))
    codes = [code for one in (op, getattr(op, "forward", None)) if (code := getattr(one, "__code__", None))]
    called: list[Any] = [getattr(op, "__globals__", {}).get(name) for code in codes for name in code.co_names]
    codes += [one.__code__ for one in called if hasattr(one, "__code__")]
    used = [name for name in NOT_ANALYTIC if any(name in code.co_names for code in codes)]
    return f" (the function calls {' and '.join(used)}, which a complex step does not pass)" * bool(used)


def compare_all(
    point: Point, some: dict[str, np.ndarray], exact: Exact | None, why_not: str, exhaustive: int,
    rng: np.random.Generator,
) -> tuple[dict[str, ArgumentReport], str]:
    """Compare each gradient with its derivative; a complex step that is refuted is dropped for all of them."""
    reports = {}
    for one in point.gradients:
        try:
            if one.gradient.size > exhaustive:
                report = compare_along_directions(point, one, exact, rng)
            elif exact:
                report = compare_exactly(point, one, exact, some[one.name])
            else:
                report = compare_by_differences(point, one, some[one.name])
        except Refuted as error:
            return compare_all(point, some, None, str(error), exhaustive, rng)
        if one.name in point.problem.skip:
            mask = point.problem.skip[one.name]
            report.notes.append(f"{report.symbol}: skip leaves out {int(mask.sum())} of {mask.size} elements")
        reports[one.name] = report
    return reports, why_not


class Comparison:
    """The elements of one gradient beside their derivatives, and the error that is allowed in each."""

    def __init__(
        self, point: Point, analytic: AnalyticGradient, chosen: np.ndarray, reference: Exact | Differences
    ) -> None:
        self.point, self.analytic, self.chosen, self.reference = point, analytic, chosen, reference
        self.found = ArgumentReport.unseen(analytic.name, analytic.gradient)
        self.error, self.spread = np.zeros((2, chosen.size))  # of the derivative; and the measured round-off of both
        # the round-off of terms that cancel, which no derivative shows
        self.least = np.full(chosen.size, 4 * point.scalar.last_bit)
        self.near: dict[tuple[int, ...], list[tuple[Exact | Differences, np.ndarray]]] = {}

    @property
    def off(self) -> np.ndarray:
        """Gradient minus derivative."""
        off: np.ndarray = np.abs(self.found.analytic - self.found.numeric)
        return off

    def judge(self) -> None:
        """Mark the chosen elements that differ from the derivative by more than the tolerance."""
        found, analytic = self.found, self.analytic
        usual = analytic.unit * np.fmax(np.abs(found.analytic), np.abs(found.numeric))
        found.doubt = SAFETY * self.error
        found.resolution = SAFETY * (self.error + self.spread + usual + self.least) + analytic.allowed
        found.wrong = self.chosen & ~(self.off <= found.resolution) & ~found.kinks

    def worst_first(self, some: np.ndarray) -> np.ndarray:
        """The numbers of the marked elements, the largest difference first."""
        off, marked = np.nan_to_num(self.off, nan=np.inf), np.flatnonzero(some)
        return marked[np.argsort(-off[marked], kind="stable")]

    def nearby(self, bits: tuple[int, ...]) -> list[tuple[Exact | Differences, np.ndarray]]:
        """The derivatives and the flattened gradient at the points nearby where the function can be computed."""
        if bits not in self.near:
            self.near[bits] = []
            for move in self.point.moves(bits):
                with contextlib.suppress(Exception):  # the move may have left the domain
                    gradient = np.ravel(np.asarray(move.grads[self.analytic.name], np.float64))
                    self.near[bits].append((self.reference.at(move.arrays, move.dy), gradient))
        return self.near[bits]

    @np.errstate(all="ignore")
    def measure_scatter(self, some: np.ndarray) -> None:
        """Measure the round-off of some elements: the spread of gradient minus derivative over points nearby."""
        name, off, size = self.analytic.name, self.off, np.abs(self.found.numeric)
        # A gradient that is zero in theory has the round-off of the others, or of the effect of some last bits of x.
        of_bits = 1024 * EPS * self.point.scalar.terms / sizes(self.point.exact[name]).reshape(-1)
        tiny = np.maximum(of_bits, EPS / RESOLVED * self.point.largest)
        values: dict[int, list[float]] = {int(i): [] for i in some}
        for bits, most in ((FEW_BITS, ROUNDED), (MORE_BITS, ROUNDED), (LONG, TIGHT), (LONGEST, TIGHT)):
            close = [i for i in values if off[i] <= max(most * size[i], tiny[i]) and not self.point.problem.nondet]
            for there, gradient in self.nearby(bits) if close else ():
                for i in close:
                    with contextlib.suppress(Exception):
                        values[i].append(float(gradient[i] - there.best(name, i)))
            for i in close:  # over the longest moves, a real error changes, too
                known = [one for one in values[i] if math.isfinite(one)]
                spread = np.ptp(known) if known else 0.0
                self.spread[i] = max(self.spread[i], spread / (SAFETY if bits is LONGEST else 1.0))
        self.judge()


def compare_exactly(point: Point, analytic: AnalyticGradient, exact: Exact, chosen: np.ndarray) -> ArgumentReport:
    """Compare the elements that `chosen` marks with complex steps; the others are NaN in the report.

    Raises: Refuted
    """
    comparison = Comparison(point, analytic, chosen, exact)
    found, name = comparison.found, analytic.name
    for i in map(int, np.flatnonzero(chosen)):
        found.numeric[i], comparison.error[i] = exact.along(name, slice(i, i + 1), np.ones(1))
    comparison.judge()
    differences = Differences(point.problem, point.exact, point.scalar)
    left = comparison.worst_first(found.wrong)
    while left.size:  # a few at a time: if all of them are wrong, the others are not looked at again
        some, left = left[:ENOUGH], left[ENOUGH:]
        comparison.measure_scatter(some)
        for i in map(int, some[found.wrong[some]]):
            _require_analytic(comparison, exact, differences, i)
        if found.wrong[some].all():
            break
    found.reference = exact.name
    return found.shaped(analytic.gradient.shape)


def _require_analytic(comparison: Comparison, exact: Exact, differences: Differences, i: int) -> None:
    """Before an element is called wrong: is the complex step really the derivative there?

    Raises: Refuted
    """
    found, name = comparison.found, comparison.analytic.name
    if differences.contradict(name, i, found.numeric[i], comparison.error[i] + comparison.spread[i]):
        raise Refuted(f"differences find another derivative of {name}")
    off = abs(found.analytic[i] - found.numeric[i])
    if off <= GOOD * abs(found.numeric[i]) and not exact.problem.nondet:  # differences cannot show so little
        stray, noise = exact.stray(name, i)
        if stray > max(0.1 * off, 64 * noise):
            raise Refuted("the function is not analytic")
    nearby = comparison.nearby(FEW_BITS)
    derivatives = [found.numeric[i], *(there.best(name, i) for there, _ in nearby)]
    gradients = [found.analytic[i], *(float(gradient[i]) for _, gradient in nearby)]
    round_off = 1e-9 * np.max(np.abs(derivatives + gradients))
    if any(np.ptp(some) > max(0.1 * np.max(np.abs(some)), round_off) for some in (derivatives, gradients)):
        raise Refuted(f"the derivative of {name} jumps, as at a corner")


@np.errstate(all="ignore")
def compare_by_differences(point: Point, analytic: AnalyticGradient, chosen: np.ndarray) -> ArgumentReport:
    """Compare the elements that `chosen` marks with differences; the others are NaN in the report.

    Four calls find the derivative of nearly every element. For the others, a whole tableau is computed. An element that
    still disagrees is tested for a corner, where any slope between those around it is right, and for round-off.
    """
    differences, name = Differences(point.problem, point.exact, point.scalar), analytic.name
    comparison = Comparison(point, analytic, chosen, differences)
    found, error = comparison.found, comparison.error
    smooth, slopes = np.ones(chosen.size, dtype=bool), np.zeros(chosen.size)
    for i in map(int, np.flatnonzero(chosen)):
        one, x = differences.one(name, i), float(point.exact[name].reshape(-1)[i])
        found.numeric[i], error[i], smooth[i] = one.value, one.error, one.smooth
        if math.isfinite(one.value):
            slopes[i] = max(abs(one.left), abs(one.right))
            # A number is known to its last bit only: no gradient is more exact than its change over this bit.
            comparison.least[i] += EPS * abs(x) * abs(one.right - one.left) / one.step
    comparison.judge()
    size = np.abs(found.numeric)
    sure = smooth & (error <= GOOD * size) & (comparison.off <= TIGHT * size + analytic.allowed)
    corners = list[str]()
    for i in map(int, comparison.worst_first(found.wrong | (chosen & ~sure))):
        one = differences.closer(name, i)
        found.numeric[i], error[i] = one.value, one.error
        comparison.judge()
        low = high = 0.0
        if found.wrong[i] or not one.smooth:
            low, high = slopes_around(point, name, i, one, found.analytic[i])
        if low < high:
            margin = 1e-3 * (high - low)
            found.kinks[i] = low - margin <= found.analytic[i] <= high + margin
            corners += [] if found.kinks[i] else [corner_in_words(point, found, i, low, high)]
            comparison.judge()
        elif found.wrong[i]:
            comparison.measure_scatter(np.array([i]))
        if found.wrong.sum() >= ENOUGH and found.wrong[i]:
            break
    found.corner = corners[0] if len(corners) == found.wrong.sum() > 0 else ""
    # A derivative that is zero has no digits; it is known if its error is small beside the slopes nearby.
    few = RESOLVED * np.abs(found.numeric) + GOOD * slopes + ZERO * point.scalar.last_bit + analytic.allowed
    if point.scalar.least_noise:  # of float32 in the function: only the largest derivatives have four digits
        few += max(RESOLVED, 100 * point.scalar.eps) * largest(np.nan_to_num(found.numeric))
    found.unresolved = chosen & (found.doubt > np.maximum(few, NOISE * point.problem.nondet))
    for i in map(int, np.flatnonzero(found.wrong & ~np.isfinite(found.numeric))):
        found.wrong[i] = False
        tiny = 2.0**-40 * sizes(point.exact[name]).reshape(-1)[i]
        if any(math.isfinite(differences.line(name, i)(step)) for step in (tiny, -tiny)):
            found.ends[i] = True  # at the end of the domain, where the slope may be infinite
        else:
            found.numeric[i], found.doubt[i], found.unresolved[i] = found.analytic[i], np.inf, True
    return found.shaped(analytic.gradient.shape)


class Direction:
    """A random direction v: how far the gradient is from the derivative along pieces of it."""

    def __init__(
        self, point: Point, analytic: AnalyticGradient, reference: Exact | Differences, v: np.ndarray
    ) -> None:
        self.analytic, self.reference, self.v = analytic, reference, v
        usual = analytic.unit * np.abs(analytic.gradient.reshape(-1)) + 4 * point.scalar.last_bit
        self.rounding = usual + point.jitter(analytic) + analytic.allowed / SAFETY

    def off(self, low: int, high: int) -> tuple[float, float]:
        """Gradient minus derivative along the piece [low, high) of v, and the tolerance of this difference."""
        where = slice(low, high)
        terms = self.analytic.gradient.reshape(-1)[where] * self.v[where]
        value, error = self.reference.along(self.analytic.name, where, self.v[where])
        rounding = float(np.linalg.norm(2 * self.rounding[where] * (self.v[where] != 0)))
        return float(terms.sum()) - value, SAFETY * (error + rounding + EPS * float(np.linalg.norm(terms)))

    def wrong_element(self) -> int:
        """One element whose error makes the sum wrong, by halving."""
        low, high = 0, self.v.size
        while high - low > 1:
            middle = (low + high) // 2
            off, allowed = self.off(low, middle)
            low, high = (low, middle) if not abs(off) <= allowed else (middle, high)
        return low

    def compare(self, found: ArgumentReport, i: int) -> None:
        """Compare one element with its derivative along v."""
        off, allowed = self.off(i, i + 1)
        found.numeric[i] = found.analytic[i] - off / self.v[i]
        found.resolution[i] = allowed / abs(self.v[i])
        found.wrong[i] = not abs(off) <= allowed


@np.errstate(all="ignore")
def compare_along_directions(
    point: Point, analytic: AnalyticGradient, exact: Exact | None, rng: np.random.Generator
) -> ArgumentReport:
    """Test a large array along random directions. If a test fails, find some of the wrong elements.

    Elements at which the gradient jumps when inputs move, as at corners, are compared one by one.
    """
    name, calls = analytic.name, point.problem.calls
    reference = exact or Differences(point.problem, point.exact, point.scalar)
    kept, corners = point.problem.kept(name).reshape(-1), at_corners(point, analytic)
    found, smooth = ArgumentReport.unseen(name, analytic.gradient), kept & ~corners
    off, allowed = 0.0, 0.0
    for _ in range(DIRECTIONS):
        # No v_i is near zero, and they have many sizes, so that two errors do not cancel.
        v = rng.choice([-1.0, 1.0], kept.size) * rng.uniform(1.0, 1.5, kept.size) * smooth
        direction = Direction(point, analytic, reference, v)
        off, allowed = direction.off(0, v.size)
        if not abs(off) <= allowed:
            _find_wrong(direction, found)
            break
    found.reference = reference.name
    if not found.wrong.any() and not abs(off) <= allowed:
        text = f"wrong along a random direction by {abs(off):.1e}, resolution {allowed:.1e}"
        found.notes.append(f"{found.symbol}: {text}, but no single element is")
        found.wrong[int(np.argmax(np.abs(found.analytic)))] = True
    elif not found.wrong.any():
        found.by_direction = abs(off) / max(float(np.linalg.norm(found.analytic)), 1e-300)
        found.notes.append(
            f"{found.symbol}: {kept.size} elements, {DIRECTIONS} random directions, {point.problem.calls - calls} "
            f"calls; this finds an error of {allowed:.1e} in one element (typical size {rms(found.analytic):.1e})"
        )
    report = found.shaped(analytic.gradient.shape)
    closer = [*np.flatnonzero(corners & kept)[:CORNERS]]
    if found.wrong.sum() < FOUND:  # the moves may have missed a corner
        closer += [*np.flatnonzero(found.wrong)] if exact is None else []
    some = np.isin(np.arange(kept.size), closer)
    if some.any():
        report.take(compare_by_differences(point, analytic, some), some.reshape(report.shape))
    return report


def _find_wrong(direction: Direction, found: ArgumentReport) -> None:
    """Find wrong elements: among a few random ones; if most of these are right, by halving, one after the other."""
    moving = np.flatnonzero(direction.v)
    some = np.random.default_rng(0).choice(moving, min(SAMPLE, moving.size), replace=False)
    for i in map(int, some[:FOUND]):
        direction.compare(found, i)
    if found.wrong.sum() >= FOUND / 4:
        for i in map(int, some[FOUND:]):
            direction.compare(found, i)
        return
    found.numeric[~found.wrong] = np.nan  # the right ones show no pattern
    while found.wrong.sum() < FOUND:
        off, allowed = direction.off(0, direction.v.size)
        if abs(off) <= allowed:
            break
        i = direction.wrong_element()
        direction.compare(found, i)
        if not found.wrong[i]:
            break
        direction.v[i] = 0.0


def at_corners(point: Point, analytic: AnalyticGradient) -> np.ndarray:
    """Mark elements at which the gradient jumps if inputs move by a few last bits, and all elements equal to them."""
    flat = point.exact[analytic.name].reshape(-1)
    return np.isin(flat, flat[point.jitter(analytic) > JUMP * largest(analytic.gradient)])


def compare_with_float64(
    point: Point, reports: dict[str, ArgumentReport], low: list[AnalyticGradient], problem: Problem, dy: Outputs
) -> None:
    """Compare gradients in low precision with those in float64; afterwards the reports hold the first."""
    moves = moved_by(FEW_BITS, problem, problem.inputs, dy)
    for one in low:
        report, size = reports[one.name], largest(one.gradient)
        off = np.abs(one.gradient - report.analytic)
        changes = [np.abs(np.asarray(move.grads[one.name], np.float64) - one.gradient) for move in moves]
        # Terms of the size |dy y / x| that cancel leave this much round-off, possibly the same in all elements.
        natural = point.scalar.terms / (min(1.0, rms(point.exact[one.name])) or 1.0)
        usual = one.unit * (max(size, 0.02 * point.largest) + 0.25 * natural)
        allowed = rounding(off, usual, one.unit * size, changes) + one.allowed
        too_far = ~(off <= allowed) & ~report.kinks
        only_here = too_far & ~report.wrong
        # For an element without a derivative, the gradient in float64 is the reference.
        report.numeric = np.where(only_here & np.isnan(report.numeric), report.analytic, report.numeric)
        report.analytic, report.resolution = one.gradient, report.resolution + allowed
        report.wrong = report.wrong | too_far
        if only_here.any() and not (report.wrong & ~only_here).any():
            report.notes.append(f"{report.symbol}: the same backward is right in float64")


def rounding(off: np.ndarray, usual: float, least: float, changes: list[np.ndarray]) -> np.ndarray:
    """The error that is allowed in a low precision, from the usual one and the changes of the gradient nearby."""
    if off.size >= MANY:  # no more than most elements need, so one wrong element of many is found
        usual = min(usual, max(4 * float(np.quantile(off, 0.9)), least))
    return np.asarray(SAFETY * (usual + np.max(changes, axis=0, initial=0.0)))


def set_sizes(point: Point, reports: dict[str, ArgumentReport]) -> None:
    """Set the size of each gradient; an element that is wrong or at a corner is not unresolved."""
    of_all = max((report.largest for report in reports.values()), default=0.0)
    for report in reports.values():
        known = float(np.max(np.nan_to_num(report.resolution), initial=0.0))
        report.size = max(report.largest, 1e-3 * of_all, 1e-6 * point.scalar.terms, known) or 1.0
        report.unresolved = report.unresolved & ~report.wrong & ~report.kinks
