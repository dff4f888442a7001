"""L = sum(dy * y), a single number, along a line through one of the arrays; and its derivative by differences.

With a random dy, a backward must return exactly dL/dx = J^T dy. So the number L is enough to test all outputs:

    t  ->  L(x + t v) - L(x) = sum(dy * (y(x + t v) - y(x)))

where v is a unit vector (one element) or a random direction (all elements at once). The outputs are subtracted before
they are summed, so outputs that do not change add no round-off. All numbers here are float64; only the function itself
may use a lower precision. If the function raises an error, for example for a logarithm of a negative number, L is NaN.

Central differences: L(h) and L(-h) have the even terms of their Taylor series in common, and these cancel:

    D(h) = (L(h) - L(-h)) / 2h = L' + c_2 h^2 + c_4 h^4 + ...     plus round-off / h

For a large h the error is c_2 h^2, for a small h it is round-off: with the best h, D alone gives ten digits.

Richardson: two values of D at h and h/2 determine c_2 and cancel it; with three steps c_4 cancels too, and so on:

    (4 D(h/2) - D(h)) / 3 = L' - c_4 h^4 / 4 + ...

Ridders writes these values into a tableau: a row for each step, and each column cancels one more power. The difference
between neighbours estimates the error of both entries. We take the entry with the smallest difference, and its error is
this difference plus the round-off. `quick` computes one or two rows, `refined` the whole tableau.

Source: Ridders, Accurate Computation of F'(x) and F'(x)F''(x) (1982).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

Outputs = tuple[np.ndarray, ...]
Evaluate = Callable[[], Outputs]

EPS = float(np.finfo(np.float64).eps)
LEVELS = 20  # number of steps of a refined derivative
RATIO = 1.6  # between one step and the next
OUTSIDE = 40  # at most so many steps outside the domain are repeated with a smaller step
GOOD = 1e-6  # a derivative with a smaller relative error needs no other step sizes
OTHER_SCALES = (2.0**-14, 2.0**6)
CONVERGED = 1e-4  # the largest relative error that is accepted in a one-sided slope


@dataclass
class Scalar:
    """L near the arrays that `evaluate` reads; y are the outputs at these arrays."""

    evaluate: Evaluate
    y: Outputs
    dy: Outputs
    eps: float = field(init=False)  # the last bit of 1 in the dtype of the outputs
    noise: float = field(init=False)  # the round-off in L: the root of the sum of the squared last bits
    terms: float = field(init=False)  # the largest |dy * y|

    def __post_init__(self) -> None:
        products = [dy * y for dy, y in zip(self.dy, self.y, strict=True)]
        self.eps = max((float(np.finfo(y.dtype).eps) for y in self.y if y.dtype.kind == "f"), default=EPS)
        self.noise = self.eps * math.sqrt(sum(float(np.sum(one * one)) for one in products))
        self.terms = max(map(largest, products), default=0.0)

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
        self.scalar, self.calls = scalar, 0
        views = [(x.reshape(-1)[where], direction) for x, where, direction in pieces]
        self.moved = [(x, x.copy(), direction) for x, direction in views]

    @property
    def last_bit(self) -> float:
        """The last bit of the largest number that is likely in the computation of L."""
        one = max([1.0, *(largest(start) for _, start, _ in self.moved), *map(largest, self.scalar.y)])
        return self.scalar.eps * one * max(map(largest, self.scalar.dy), default=0.0)

    def __call__(self, t: float) -> float:
        """The change of L at t; NaN outside the domain, where the function may raise an error."""
        self.calls += 1
        try:
            for x, start, direction in self.moved:
                np.add(start, t * direction, out=x)
            outputs = self.scalar.evaluate()
        except Exception:  # t is outside the domain, since the function runs at t = 0
            return math.nan
        finally:
            for x, start, _ in self.moved:
                x[...] = start
        change = 0.0
        for y_t, y, dy in zip(outputs, self.scalar.y, self.scalar.dy):
            if y_t.shape != y.shape:
                return math.nan
            y_t -= y
            y_t *= dy
            change += float(y_t.sum())
        return change


def largest(x: np.ndarray) -> float:
    """The largest absolute value; 0 for an empty array."""
    return float(np.max(np.abs(x), initial=0.0))


def sizes(x: np.ndarray) -> np.ndarray:
    """The size of each element; for a zero, the root mean square of x."""
    size = np.abs(x)
    return np.where(size > 0, size, rms(x) or 1.0)


def rms(x: np.ndarray) -> float:
    """The root mean square: the usual size of an element; 0 for an empty array."""
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0


class Derivative(NamedTuple):
    """A derivative along a line, its error, and the slopes to the left and right (they differ at a corner)."""

    value: float
    error: float
    left: float
    right: float


UNKNOWN = Derivative(math.nan, math.inf, math.nan, math.nan)


def first_step(value: float, usual: float) -> float:
    """A step: small relative to a value and the usual size of the array, at most 2^-9, larger than round-off."""
    scale = max(abs(value), usual) or 1.0
    return max(2.0**-9 * min(1.0, scale), 2.0**-24 * scale)


def quick(line: Line, h: float) -> Derivative:
    """Richardson from h and h/2: four calls, an error of about 1e-10 for a smooth function."""
    far_right, far_left = line(h), line(-h)
    right, left = line(h / 2), line(-h / 2)
    coarse = (far_right - far_left) / (2 * h)
    fine = (right - left) / h
    value = (4 * fine - coarse) / 3
    error = abs(value - fine) + 2 * line.scalar.noise / h
    if not math.isfinite(value):
        return UNKNOWN
    # One-sided slopes, each without its first-order error.
    return Derivative(value, error, (-4 * left + far_left) / h, (4 * right - far_right) / h)


def refined(line: Line, h: float, levels: int = LEVELS, measure: bool = True) -> Derivative:
    """Ridders' tableau, starting from the step 8h: the entry that agrees best with its neighbours.

    Its error is the round-off plus the larger of the differences from two neighbours, since one difference may be
    small by chance. The round-off is measured unless `measure` is False. If the error stays large, the function
    changes on a different scale than h: then much smaller and larger steps are tried.
    """
    noise = _measured_noise(line, 8 * h * RATIO ** (1 - levels)) if measure else line.scalar.noise
    best = _from_step(line, h, levels, noise)
    for other in OTHER_SCALES:
        if measure and not best.error <= GOOD * abs(best.value):
            # Such small steps may change nothing at all: then the error is at least the last bit of the computation.
            noise = max(_measured_noise(line, 8 * other * h * RATIO ** (1 - levels)), line.last_bit)
            found = _from_step(line, other * h, levels, noise)
            best = found if found.error < 0.5 * best.error else best
    return one_sided(line, h) if best is UNKNOWN else best


def _from_step(line: Line, h: float, levels: int, noise: float) -> Derivative:
    changes: list[tuple[float, float, float]] = []
    best, level, outside = UNKNOWN, 0, 0
    while level < levels + outside:
        step = _few_bits(8 * h * RATIO**-level)
        right, left = line(step), line(-step)
        level += 1
        if not math.isfinite(right - left):  # outside the domain: start again from a smaller step
            changes, outside = [], min(outside + 1, OUTSIDE)
            continue
        changes.append((step, right, left))
        best = _tableau(changes, noise)
        if best.error <= 1e-13 * abs(best.value):
            break
    stair = _stair(changes, line)
    return _tableau(changes, stair) if stair > noise else best


def one_sided(line: Line, h: float) -> Derivative:
    """The derivative at the end of the domain: the slope on the one side that exists, if it converges."""
    best = UNKNOWN
    for side in (1.0, -1.0):
        steps: list[float] = []
        previous: list[float] = []
        for level in range(LEVELS):
            step = _few_bits(8 * h * RATIO**-level)
            change = side * line(side * step)
            if not math.isfinite(change):
                steps, previous = [], []
                continue
            steps.append(step)
            row = [change / step]
            for order, above in enumerate(previous[:6], start=1):  # on one side, every power of h is in the error
                row.append(row[-1] + (row[-1] - above) / (steps[-1 - order] / step - 1))
                error = max(abs(row[-1] - row[-2]), abs(row[-1] - above)) + 2 * line.scalar.noise / step
                if error < best.error:
                    best = Derivative(row[-1], error, row[-1], row[-1])
            previous = row
    return best if best.error <= CONVERGED * abs(best.value) else UNKNOWN


def _stair(changes: list[tuple[float, float, float]], line: Line) -> float:
    """The height of the first jump of L, beyond small steps over which L is linear; 0 if L is smooth.

    Round-off inside a function makes a staircase: for x far below 0, gelu is x times a few last bits of 1. A jump of
    many last bits is not round-off but a corner, for example of a relu nearby: then the small steps are right.
    """
    if not changes:
        return 0.0
    smallest, right, left = changes[-1]
    slope, before = (right - left) / (2 * smallest), line.scalar.noise
    for step, right, left in reversed(changes):
        off = max(abs(right - slope * step), abs(left + slope * step))
        if off > 20 * before:  # a smooth bend grows by at most RATIO^4 from a step to the next
            return off if off <= 16 * line.last_bit else 0.0
        before = max(before, off)
    return 0.0


def _tableau(changes: list[tuple[float, float, float]], noise: float) -> Derivative:
    """The best entry of the tableau from the values (step, L(step), L(-step))."""
    best = UNKNOWN
    previous: list[float] = []
    for k, (step, right, left) in enumerate(changes):
        row = [(right - left) / (2 * step)]
        for order, above in enumerate(previous[:5], start=1):
            row.append(row[-1] + (row[-1] - above) / ((changes[k - order][0] / step) ** 2 - 1))
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - above)) + 2 * noise / step
            if error < best.error:
                # One-sided slopes, each without its first-order error.
                before, right_before, left_before = changes[k - 1]
                ratio = before / step
                sides = (
                    (ratio * new / step - old / before) / (ratio - 1)
                    for new, old in ((-left, -left_before), (right, right_before))
                )
                best = Derivative(row[-1], error, *sides)
        previous = row
    return best


def _measured_noise(line: Line, smallest: float) -> float:
    """The measured round-off in L.

    Over seven points that are so close, a smooth function is a cubic to the last bit, so fourth differences are noise.
    Three spacings are used, since with one spacing a function may change by exactly three last bits per point: then it
    looks perfectly straight.

    Source: Moré, Wild, Estimating Computational Noise (2011).
    """
    noise = line.scalar.noise
    for spread in (1.0, 1.37, 2.71):
        spacing = _few_bits(spread * smallest / 3)
        values = np.array([line(j * spacing) if j else 0.0 for j in range(-3, 4)])
        if not np.all(np.isfinite(values)):
            break
        fourth = np.diff(values, 4)
        noise = max(noise, 2 * math.sqrt(float(np.mean(fourth * fourth)) / 70))
    return noise


def measure_stairs(line: Line) -> None:
    """Measure the round-off of a function that uses a lower precision than float64, inside or for its result.

    Such a function does not change if the arrays move by a relative 2^-40, but changes if they move by 2^-9.
    """
    if line(2.0**-40) == 0.0 and line(2.0**-9) != 0.0:
        line.scalar.noise = _measured_noise(line, 2.0**-18)


def _few_bits(step: float) -> float:
    """The step rounded to 8 bits, so that x + step and x - step are mostly exact."""
    mantissa, exponent = math.frexp(step)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def is_kink(line: Line, derivative: Derivative, h: float) -> bool:
    """Whether the slopes to the left and right differ for every step, however small, as at zero for relu.

    For a smooth function their difference is L'' h, which shrinks with h; at a corner it does not shrink.
    """
    gaps: list[float] = []
    step = h
    for _ in range(5):
        right, left = line(step), line(-step)
        gap, unseen = abs(right + left) / step, max(200 * line.scalar.noise, 8 * line.last_bit) / step
        if gaps and gap <= unseen < 0.3 * gaps[0]:
            return False  # the gap was visible at a larger step, and has disappeared
        if not math.isfinite(gap) or gap <= unseen:
            break
        gaps.append(gap)
        step /= 16
    if len(gaps) < 3:
        return False
    size = max(abs(derivative.left), abs(derivative.right), abs(derivative.value))
    return gaps[-1] > 0.3 * gaps[0] and gaps[-1] > 1e-7 * size


def taylor_slope(line: Line, analytic: float) -> float | None:
    """The power of h with which the Taylor remainder |L(h) - L(0) - h L'| falls: 2 if L' is right, about 1 if wrong.

    None if the remainder is below round-off, as for a linear function with the right gradient.
    """
    remainders = []
    for k in range(3, 22):
        h = 2.0**-k
        with np.errstate(all="ignore"):
            remainder = abs(line(h) - h * analytic)
        if not math.isfinite(remainder):
            continue
        if remainder <= 200 * line.scalar.noise:
            break
        remainders.append(remainder)
    return math.log2(remainders[-3] / remainders[-1]) / 2 if len(remainders) > 2 else None
