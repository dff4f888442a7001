"""Two ways to the derivative of any function: central differences, and a step into the complex plane.

With a random dy, a backward must return exactly dL/dx = J^T dy. So one number is enough to test all outputs:

    t  ->  L(x + t v) - L(x) = sum(dy * (y(x + t v) - y(x)))

where v is a unit vector (one element) or a random direction (all elements at once). The outputs are subtracted before
they are summed, so an output that does not change adds no round-off. All numbers here are float64. If the function
raises an error, for example for a logarithm of a negative number, L is NaN.

**Differences.** L(h) and L(-h) have the even terms of their Taylor series in common, and these cancel:

    D(h) = (L(h) - L(-h)) / 2h = L' + c_2 h^2 + c_4 h^4 + ...     plus round-off / h

Richardson: two values of D at h and h/2 determine c_2 and cancel it; with three steps c_4 cancels too, and so on:

    (4 D(h/2) - D(h)) / 3 = L' - c_4 h^4 / 4 + ...

Ridders writes these values into a tableau: a row for each step, and each column cancels one more power. The difference
between neighbours estimates the error of an entry, and the best entry is the derivative: of ten digits or more. `quick`
computes one or two rows, `refined` the whole tableau.

**Complex steps.** Half of the digits are lost where two nearly equal numbers are subtracted. A step in the imaginary
direction, i h v with h = 1e-100, needs no subtraction:

    y(x + i h v) = y(x) + i h J v - h^2 (...)        so        J v = Im y(x + i h v) / h

The real part is y as before, and h^2 is too small to change any digit: J v is right up to the round-off of the
function, without a step to choose and without an error to estimate. The function runs unchanged on complex arrays.
NumPy orders complex numbers by their real parts, so a maximum, a comparison and a mask take the same branch as for real
numbers. But abs, sign and np.var are not analytic: for them the imaginary part is not the derivative. So a complex step
is used only if differences confirm it (`compare.reference_at`).

Source: Ridders, Accurate Computation of F'(x) and F'(x)F''(x) (1982); Squire, Trapp, Using Complex Variables to
Estimate Derivatives of Real Functions (1998).
"""

import contextlib
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from numpy_attention.backend import COMPLEX
from numpy_attention.gradcheck.problem import Arrays, Evaluate, Outputs, Problem, in_float64, is_float, largest

EPS = float(np.finfo(np.float64).eps)
LEVELS = 16  # steps of a tableau, each half of the step before
OUTSIDE = 40  # at most so many steps outside the domain
SAFETY = 8.0  # errors and round-off are estimates: allow this multiple
GOOD = 1e-6  # a relative error that is small enough
RESOLVED = 1e-4  # relative to the derivative: with a larger error, no element is called right
H = 1e-100


def rms(x: np.ndarray) -> float:
    """The root mean square of the finite elements: the usual size of an element; 0 without any."""
    x = x[np.isfinite(x)]
    most = largest(x)
    return most * float(np.sqrt(np.mean((x / most) ** 2))) if most else 0.0


def sizes(x: np.ndarray) -> np.ndarray:
    """The size of each element; for a zero, or an infinite element, the root mean square of x."""
    size = np.abs(x)
    return np.where((size > 0) & np.isfinite(size), size, rms(x) or 1.0)


@dataclass
class Scalar:
    """L near the arrays that `evaluate` reads; y are the outputs at these arrays."""

    evaluate: Evaluate
    y: Outputs
    dy: Outputs
    least_noise: float = 0.0  # of a function that rounds more roughly than float64, or differs from run to run

    def __post_init__(self) -> None:
        self.products = [np.abs(dy * y) for dy, y in zip(self.dy, self.y, strict=True)]
        self.terms = max(map(largest, self.products), default=0.0)  # the largest |dy y|
        # Terms of this size that cancel, as for a saturated softmax, leave this much round-off in a gradient.
        self.last_bit = EPS * min(self.terms, max(map(largest, self.dy), default=0.0))
        self.eps = max((float(np.finfo(y.dtype).eps) for y in self.y if y.dtype.kind == "f"), default=EPS)

    def line(self, x: np.ndarray, where: slice, direction: np.ndarray) -> "Line":
        """L along a line through a slice of the flattened x."""
        return Line(self, [(x, where, direction)])

    def through(self, arrays: Iterable[np.ndarray], directions: Iterable[np.ndarray]) -> "Line":
        """L along a line through several arrays at once."""
        return Line(self, [(x, slice(None), v.reshape(-1)) for x, v in zip(arrays, directions, strict=True)])


class Line:
    """t -> L(x + t v) - L(x); x is changed in place, and always restored.

    Each piece is an array, the slice of the flattened array that moves, and the direction in which it moves.

    Raises: ValueError for an array that is not C-contiguous
    """

    def __init__(self, scalar: Scalar, pieces: list[tuple[np.ndarray, slice, np.ndarray]]) -> None:
        if not all(x.flags.c_contiguous for x, _, _ in pieces):
            raise ValueError("Line: x must be C-contiguous; otherwise only a copy would move")
        self.scalar, self.noise = scalar, scalar.least_noise
        views = [(x.reshape(-1)[where], direction) for x, where, direction in pieces]
        self.moved = [(x, x.copy(), direction) for x, direction in views]
        size = max((largest(x[np.isfinite(x)]) / (largest(v) or 1.0) for x, v in views), default=0.0)
        self.size = 2.0 ** math.floor(math.log2(size)) if size else 0.0  # about the t that changes x by its own size

    def changes(self, t: float) -> list[np.ndarray] | None:
        """dy (y(x + t v) - y(x)) for each output; None outside the domain, where the function may raise an error."""
        if 0 < abs(t) < 2.0**-50 * self.size:  # below the last bit of x
            return None
        try:
            for x, start, direction in self.moved:
                np.add(start, t * direction, out=x)
            outputs = self.scalar.evaluate()
        except Exception:  # t is outside the domain, since the function runs at t = 0
            return None
        finally:
            for x, start, _ in self.moved:
                x[...] = start
        if any(now.shape != y.shape for now, y in zip(outputs, self.scalar.y)):
            return None
        found, noise = [], 0.0
        for now, y, dy, product in zip(outputs, self.scalar.y, self.scalar.dy, self.scalar.products):
            now -= y
            most = largest(product[now != 0]) if now.ndim else float(product)
            noise += most * math.sqrt(now.size)
            found.append(now * dy)
        self.noise = max(self.noise, self.scalar.eps * noise)
        return found

    def __call__(self, t: float) -> float:
        """The change of L at t; NaN outside the domain."""
        found = self.changes(t)
        return math.nan if found is None else sum(float(one.sum()) for one in found)


class Derivative(NamedTuple):
    """A derivative along a line, its error, the step that gave it, and the slopes to the left and right there."""

    value: float
    error: float
    step: float
    left: float
    right: float

    @property
    def smooth(self) -> bool:
        """Whether the slopes to the left and to the right are nearly equal: otherwise there may be a corner."""
        return not abs(self.right - self.left) > 0.01 * max(abs(self.right), abs(self.left))

    @property
    def good(self) -> bool:
        """Whether it is known to six digits, and there is no corner."""
        return self.smooth and self.error <= GOOD * abs(self.value)

    def agrees_with(self, other: "Derivative") -> bool:
        """Whether two derivatives are equal up to their errors."""
        return abs(self.value - other.value) <= SAFETY * (self.error + other.error)


UNKNOWN = Derivative(math.nan, math.inf, 0.0, math.nan, math.nan)


def first_step(value: float, usual: float) -> float:
    """A power of two that is small relative to a value and to the usual size of its array."""
    scale = max(abs(value), usual) or 1.0
    return 2.0 ** math.floor(math.log2(max(2.0**-9 * min(1.0, scale), 2.0**-24 * scale, 2.0**-900)))


def quick(line: Line, h: float) -> Derivative:
    """Richardson from h and h/2: four calls, an error of about 1e-10 for a smooth function."""
    far_right, far_left, right, left = line(h), line(-h), line(h / 2), line(-h / 2)
    fine = (right - left) / h
    value = (4 * fine - (far_right - far_left) / (2 * h)) / 3
    if not math.isfinite(value):
        return UNKNOWN
    return Derivative(value, abs(value - fine) + 2 * line.noise / h, h, -2 * left / h, 2 * right / h)


def refined(line: Line, h: float, levels: int = LEVELS, measure: bool = True) -> Derivative:
    """Ridders' tableau, from the step 8h down: the entry with the smallest error.

    With `measure`, the round-off of L is measured, too. A pole or a corner may be much nearer than x is large: then
    long steps agree with each other and are wrong, but the slopes to the left and to the right differ. Such a
    derivative counts only if the shortest steps find it, too.
    """
    if not measure:
        return _from_step(line, 8 * h, levels)
    shortest = 2.0**-44 * line.size or 2.0**-35 * h
    line.noise = max(line.noise, measured_noise(line, shortest / 4))
    best = _from_step(line, 8 * h, levels)  # it also shows which outputs change
    short = quick(line, shortest)
    for bits in (12, 24):
        if best.good or best.agrees_with(short):
            break
        best = _from_step(line, 8 * h * 2.0**-bits, levels)
    else:
        best = best if best.good or best.agrees_with(short) else short
    if not best.good:  # the function may change over much longer steps only
        long = _from_step(line, 512 * h, levels)
        best = long if long.agrees_with(short) and long.error < best.error else best
    return best if math.isfinite(best.value) else _one_sided(line, h)


def _from_step(line: Line, step: float, levels: int) -> Derivative:
    steps, right, left = list[float](), list[float](), list[float]()
    best, outside = UNKNOWN, 0
    while len(steps) < levels and outside < OUTSIDE:
        up, down = line(step), line(-step)
        if math.isfinite(up - down):
            steps, right, left = [*steps, step], [*right, up / step], [*left, -down / step]
        else:  # outside the domain: start again from a smaller step
            steps, right, left, outside = [], [], [], outside + 1
        step /= 2
        best = _best_entry(steps, right, left, line.noise)
        if best.error <= 1e-13 * abs(best.value):
            break
    return best


def _best_entry(steps: Sequence[float], right: Sequence[float], left: Sequence[float], noise: float) -> Derivative:
    """The best entry of the tableau of D = (right + left) / 2, whose error has only even powers of h."""
    value, error, k = extrapolated(steps, [(r + l) / 2 for r, l in zip(right, left)], 2, noise)
    if k == 0:
        return UNKNOWN
    sides = (2 * side[k] - side[k - 1] for side in (left, right))  # each without its first-order error
    return Derivative(value, error, steps[k], *sides)


def extrapolated(steps: Sequence[float], slopes: Sequence[float], power: int, noise: float) -> tuple[float, float, int]:
    """Ridders' tableau: the best entry, its error and its row; the error of a slope has powers of h^power.

    The error is the round-off plus the larger of the differences from two neighbours: one may be small by chance.
    """
    best, previous = (math.nan, math.inf, 0), list[float]()
    for k, (step, slope) in enumerate(zip(steps, slopes)):
        row = [slope]
        for order, above in enumerate(previous[:5], start=1):
            row.append(row[-1] + (row[-1] - above) / ((steps[k - order] / step) ** power - 1))
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - above)) + 2 * noise / step
            if error < best[1]:
                best = row[-1], error, k
        previous = row
    return best


def _one_sided(line: Line, h: float) -> Derivative:
    """The derivative at the end of the domain: the slope on the one side that exists, if it converges."""
    for side in (1.0, -1.0):
        steps = [8 * h * 2.0**-level for level in range(LEVELS + OUTSIDE)]
        known = [(step, slope) for step in steps if math.isfinite(slope := side * line(side * step) / step)]
        value, error, k = extrapolated([step for step, _ in known], [slope for _, slope in known], 1, line.noise)
        if error <= RESOLVED * abs(value):  # otherwise it does not converge: the slope of a square root at zero
            return Derivative(value, error, known[k][0], value, value)
    return UNKNOWN


def measured_noise(line: Line, smallest: float) -> float:
    """The measured round-off in L.

    Over seven points that are so close, a smooth function is a cubic to the last bit, so fourth differences are noise.
    Three spacings are used, since with one spacing a function may change by exactly three last bits per point: then it
    looks perfectly straight.

    Source: Moré, Wild, Estimating Computational Noise (2011).
    """
    noise = 0.0
    for spread in (1.0, 1.375, 2.75):
        spacing = spread * smallest
        values = np.array([line(j * spacing) if j else 0.0 for j in range(-3, 4)])
        if not np.all(np.isfinite(values)):
            break
        fourth = np.diff(values, 4)
        noise = max(noise, 2 * math.sqrt(float(np.mean(fourth * fourth)) / 70))
    return noise


def taylor_slope(line: Line, analytic: float) -> float | None:
    """The power of h with which the Taylor remainder |L(h) - L(0) - h L'| falls: 2 if L' is right, about 1 if wrong.

    None if the remainder is below round-off, as for a linear function with the right gradient.
    """
    remainders = []
    for k in range(3, 22):
        h = 2.0**-k
        remainder = abs(line(h) - h * analytic)
        if not math.isfinite(remainder):
            continue
        if remainder <= 200 * line.noise:
            break
        remainders.append(remainder)
    return math.log2(remainders[-3] / remainders[-1]) / 2 if len(remainders) > 2 else None


def _preference(one: Derivative) -> tuple[bool, float]:
    """The key of the better of two derivatives: without a corner if its digits are known, then with a smaller error."""
    return not (one.smooth and one.error <= RESOLVED * abs(one.value)), one.error


class Differences:
    """Derivatives of L with respect to single elements, by differences."""

    name = "differences"

    def __init__(self, problem: Problem, arrays: Arrays, scalar: Scalar) -> None:
        self.problem, self.arrays, self.scalar = problem, arrays, scalar
        self.usual = {name: rms(x) for name, x in arrays.items() if is_float(x)}

    def at(self, arrays: Arrays, dy: Outputs) -> "Differences":
        """The same at other arrays."""
        arrays = in_float64(arrays)
        evaluate = self.problem.bind(arrays)
        return Differences(self.problem, arrays, Scalar(evaluate, evaluate(), dy, self.scalar.least_noise))

    def line(self, name: str, i: int) -> Line:
        """L along one element."""
        return self.scalar.line(self.arrays[name], slice(i, i + 1), np.ones(1))

    def first_step(self, name: str, i: int) -> float:
        """The first step for one element."""
        return first_step(float(self.arrays[name].reshape(-1)[i]), self.usual[name])

    def one(self, name: str, i: int) -> Derivative:
        """The derivative of one element, in four calls."""
        return quick(self.line(name, i), self.first_step(name, i))

    def closer(self, name: str, i: int) -> Derivative:
        """The derivative of one element by whole tableaus, with steps of the size of the array, the element, and 1."""
        first, own = self.first_step(name, i), 2.0**-9 * abs(float(self.arrays[name].reshape(-1)[i]))
        line = self.line(name, i)  # the same for all, since a short step may change nothing, without any round-off
        found = refined(line, first)
        for h in (own, 2.0**-9):
            if not found.good and 0 < h != first:
                found = min(found, refined(line, h), key=_preference)
        return found

    def best(self, name: str, i: int) -> float:
        """The derivative of one element, as exact as possible."""
        return self.closer(name, i).value

    def contradict(self, name: str, i: int, value: float, error: float) -> bool:
        """Whether the derivative of one element is known, and is not this value."""
        for derivative in (self.one, self.closer):
            with np.errstate(all="ignore"):
                found = derivative(name, i)
            if not abs(found.value - value) > SAFETY * (found.error + error) + GOOD * abs(found.value):
                return False
        return found.error <= RESOLVED * abs(found.value)

    def along(self, name: str, where: slice, v: np.ndarray) -> tuple[float, float]:
        """The derivative along a slice of the flattened array, and its error."""
        x = self.arrays[name]
        found = refined(self.scalar.line(x, where, v), 0.25 * first_step(0.0, rms(x)), 5, measure=False)
        return found.value, found.error


class NoComplexStep(Exception):
    """The function cannot run on complex arrays; the message gives the reason."""


class Exact:
    """Derivatives of L by complex steps, on copies of the arrays.

    Raises: NoComplexStep for a function that rejects complex arrays or returns a different result for them.
    """

    name = "complex step"

    def __init__(self, problem: Problem, arrays: Arrays, y: Outputs | None, dy: Outputs) -> None:
        if problem.complex:
            raise NoComplexStep("its inputs or outputs are complex")
        self.problem, self.arrays, self.dy = problem, in_complex(arrays), dy
        self.evaluate = problem.bind(self.arrays)
        try:
            at_rest = self._run()
        except Exception as error:  # any error, in a function that was not written for complex numbers
            raise NoComplexStep(f"{type(error).__name__}: {error}") from None
        for one, real in zip(at_rest, y, strict=True) if y is not None else ():
            # A rough comparison is enough: round-off may be large, and differences find a wrong derivative later.
            if one.shape != real.shape or not largest(one.real - real) <= 1e-3 * largest(real) + 64 * EPS:
                raise NoComplexStep("it returns a different result for complex arrays")
            if one.imag.any():
                raise NoComplexStep("it returns complex numbers for real inputs")

    def at(self, arrays: Arrays, dy: Outputs) -> "Exact":
        """The same at other arrays."""
        return Exact(self.problem, in_float64(arrays), None, dy)

    def best(self, name: str, i: int) -> float:
        """The derivative of one element."""
        return self.along(name, slice(i, i + 1), np.ones(1))[0]

    def along(self, name: str, where: slice, v: np.ndarray) -> tuple[float, float]:
        """The derivative along a slice of the flattened array, and its round-off."""
        return self._step([(self.arrays[name].reshape(-1)[where], v)])

    def through(self, directions: Mapping[str, np.ndarray]) -> tuple[float, float]:
        """The same along a direction through several arrays."""
        return self._step([(self.arrays[name], v) for name, v in directions.items()])

    def stray(self, name: str, i: int) -> tuple[float, float]:
        """The derivative of L with respect to the conjugate of an element, 0 for an analytic function; its round-off.

        Formula: dL/d conj(z) = mean of L(x + h e^(it)) e^(it) / h over 16 points t of a circle
        """
        x, h = self.arrays[name].reshape(-1), 2.0**-9
        start, total, size = x[i], 0.0, 0.0
        for turn in np.exp(2j * np.pi * np.arange(16) / 16):
            try:
                x[i] = start + h * turn
                terms = [dy * one for dy, one in zip(self.dy, self._run())]
            except Exception:  # outside the domain
                return 0.0, 0.0
            finally:
                x[i] = start
            total += sum(one.sum() for one in terms) * turn
            size += sum(float(np.abs(one).sum()) for one in terms)
        return abs(total) / (16 * h), EPS * size / h

    def _step(self, moved: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
        for x, direction in moved:
            x.imag = H * direction
        try:
            y = self._run()
        finally:
            for x, _ in moved:
                x.imag = 0.0
        terms = [dy * (one.imag / H) for dy, one in zip(self.dy, y, strict=True)]
        return sum(float(one.sum()) for one in terms), 4 * EPS * sum(float(np.abs(one).sum()) for one in terms)

    def _run(self) -> Outputs:
        with complex_numbers(), np.errstate(all="ignore"):
            return self.evaluate()


@contextlib.contextmanager
def complex_numbers() -> Iterator[None]:
    """In this context the ops of this package take complex arrays, and discarding an imaginary part is an error."""
    token = COMPLEX.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            yield
    finally:
        COMPLEX.reset(token)


def in_complex(arrays: Arrays) -> Arrays:
    """Copies of the arrays of floats in complex128; other values are unchanged."""
    return {
        name: np.array(value, dtype=np.complex128, order="C") if is_float(value) else value
        for name, value in arrays.items()
    }
