"""L = sum(dy * y), a single number, along a line through one of the arrays; its derivative by differences.

With a random dy, dL/dx = J^T dy is exactly what a backward must return. So one number stands for all outputs:

    t  ->  L(x + t v) - L(x) = sum(dy * (y(x + t v) - y(x)))

where v is a unit vector (one element) or a random direction (all elements at once). The difference is taken output by
output before it is summed, so that outputs which do not change add no round-off. Everything here is float64, except
what the function itself computes in less. Where it raises, as a logarithm of a negative number may, L is NaN.

Central differences: L(h) and L(-h) have the even terms of their Taylor series in common, and these cancel:

    D(h) = (L(h) - L(-h)) / 2h = L' + c_2 h^2 + c_4 h^4 + ...     with round-off / h added

A large h suffers from c_2, a small one from round-off: D alone is good for ten digits, at the best h.

Richardson: two values of D at h and h/2 determine c_2, which cancels; with three steps c_4 cancels too, and so on:

    (4 D(h/2) - D(h)) / 3 = L' - c_4 h^4 / 4 + ...

Ridders puts these values into a tableau: a row for each step, ever higher powers cancelled to the right. The difference
between neighbours estimates the error of both, so the entry with the smallest one is taken, and its error is that
difference plus the round-off. `quick` is the first row or two, `refined` the whole tableau.

At the end of the domain there is only one side, and all powers of h remain in the error (`one_sided`). How fast does
|L(h) - h L'| fall? Like h^2 for the right L', like h for a wrong one: a second opinion without a tableau. At a corner
(relu at zero, a tie in a maximum) the slopes to the left and to the right stay apart, however small the step
(`is_kink`).

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
LEVELS = 20  # steps of a refined derivative
RATIO = 1.6  # of one step to the next
OUTSIDE = 40  # so many steps outside the domain do not count among the levels
GOOD = 1e-6  # relative error of a derivative that needs no other scale
OTHER_SCALES = (2.0**-14, 2.0**6)
SETTLED = 1e-4  # relative error of a one-sided slope that is good enough


@dataclass
class Scalar:
    """L near the arrays that `evaluate` reads; y is what it gives there."""

    evaluate: Evaluate
    y: Outputs
    dy: Outputs
    eps: float = field(init=False)  # the last bit of a 1 in the outputs' dtype
    noise: float = field(init=False)  # the round-off in L: half a last bit of every output, added like noise
    terms: float = field(init=False)  # the largest |dy * y|

    def __post_init__(self) -> None:
        products = [dy * y for dy, y in zip(self.dy, self.y, strict=True)]
        self.eps = max((float(np.finfo(y.dtype).eps) for y in self.y if y.dtype.kind == "f"), default=EPS)
        self.noise = self.eps * math.sqrt(sum(float(np.sum(one * one)) for one in products))
        self.terms = max(map(largest, products), default=0.0)

    def line(self, x: np.ndarray, where: slice, direction: np.ndarray) -> "Line":
        """L along a line through a stretch of the flattened x."""
        return Line(self, [(x, where, direction)])

    def through(self, arrays: Iterable[np.ndarray], directions: Iterable[np.ndarray]) -> "Line":
        """L along a line through several arrays at once."""
        return Line(self, [(x, slice(None), v.reshape(-1)) for x, v in zip(arrays, directions, strict=True)])


class Line:
    """t -> L(x + t v) - L(x), where x is moved in place and always put back.

    Each piece is an array, the stretch of it (flattened) that moves, and how far its elements move per unit of t.

    Raises: ValueError for an array that is not C-contiguous
    """

    def __init__(self, scalar: Scalar, pieces: list[tuple[np.ndarray, slice, np.ndarray]]) -> None:
        if not all(x.flags.c_contiguous for x, _, _ in pieces):
            raise ValueError("Line: x must be C-contiguous, or moving it would move a copy")
        self.scalar, self.calls = scalar, 0
        views = [(x.reshape(-1)[where], direction) for x, where, direction in pieces]
        self.moved = [(x, x.copy(), direction) for x, direction in views]

    @property
    def noise(self) -> float:
        """The round-off in L."""
        return self.scalar.noise

    @property
    def last_bit(self) -> float:
        """The last bit of the largest number that is likely to occur in the computation of L."""
        one = max([1.0, *(largest(start) for _, start, _ in self.moved), *map(largest, self.scalar.y)])
        return self.scalar.eps * one * max(map(largest, self.scalar.dy), default=0.0)

    def __call__(self, t: float) -> float:
        """The change of L at t; NaN outside the domain, where a function may raise."""
        self.calls += 1
        try:
            for x, start, direction in self.moved:
                np.add(start, t * direction, out=x)
            outputs = self.scalar.evaluate()
        except Exception:  # outside the domain, since it was computed at t = 0
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
    """The largest absolute value; 0 where there is none."""
    return float(np.max(np.abs(x), initial=0.0))


def sizes(x: np.ndarray) -> np.ndarray:
    """How large each element is; a zero counts as large as the root mean square of x."""
    size = np.abs(x)
    return np.where(size > 0, size, rms(x) or 1.0)


def rms(x: np.ndarray) -> float:
    """The root of the mean square: the usual size of an element; 0 where there is none."""
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0


class Derivative(NamedTuple):
    """A derivative along a line, its error, and the slopes to the left and right (they differ at a kink)."""

    value: float
    error: float
    left: float
    right: float


UNKNOWN = Derivative(math.nan, math.inf, math.nan, math.nan)


def first_step(value: float, usual: float) -> float:
    """A step small compared with a value and the usual size of its neighbours, at most 2^-9, not lost in round-off."""
    scale = max(abs(value), usual) or 1.0
    return max(2.0**-9 * min(1.0, scale), 2.0**-24 * scale)


def quick(line: Line, h: float) -> Derivative:
    """Richardson from h and h/2: four calls, and right to about 1e-10 for a smooth function."""
    far_right, far_left = line(h), line(-h)
    right, left = line(h / 2), line(-h / 2)
    coarse = (far_right - far_left) / (2 * h)
    fine = (right - left) / h
    value = (4 * fine - coarse) / 3
    error = abs(value - fine) + 2 * line.noise / h
    if not math.isfinite(value):
        return UNKNOWN
    # One-sided slopes, each with its own first-order error removed.
    return Derivative(value, error, (-4 * left + far_left) / h, (4 * right - far_right) / h)


def refined(line: Line, h: float, levels: int = LEVELS, measure: bool = True) -> Derivative:
    """Ridders' tableau from the step 8h down: the entry whose neighbours agree best, with that disagreement as error.

    The error is the larger of the two disagreements, since one of them may be small by accident, plus the round-off,
    which is measured unless `measure` is off. Where it stays large, the function bends on another scale than h: then
    far smaller steps are tried, and larger ones.
    """
    noise = _measured_noise(line, 8 * h * RATIO ** (1 - levels)) if measure else line.noise
    best = _from_step(line, h, levels, noise)
    for other in OTHER_SCALES:
        if measure and not best.error <= GOOD * abs(best.value):
            # Steps so small may move nothing at all: they see no more than the last bits of the computation.
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
        if not math.isfinite(right - left):  # outside the domain: start again with a smaller step
            changes, outside = [], min(outside + 1, OUTSIDE)
            continue
        changes.append((step, right, left))
        best = _tableau(changes, noise)
        if best.error <= 1e-13 * abs(best.value):
            break
    stair = _stair(changes, line)
    return _tableau(changes, stair) if stair > noise else best


def one_sided(line: Line, h: float) -> Derivative:
    """The derivative where the domain ends: the slope to the side that is left, if it settles."""
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
            for order, above in enumerate(previous[:6], start=1):  # here every power of h is in the error
                row.append(row[-1] + (row[-1] - above) / (steps[-1 - order] / step - 1))
                error = max(abs(row[-1] - row[-2]), abs(row[-1] - above)) + 2 * line.noise / step
                if error < best.error:
                    best = Derivative(row[-1], error, row[-1], row[-1])
            previous = row
    return best if best.error <= SETTLED * abs(best.value) else UNKNOWN


def _stair(changes: list[tuple[float, float, float]], line: Line) -> float:
    """The height of the stair where L, straight over the smallest steps, first jumps; 0 where it bends smoothly.

    Round-off inside a function makes stairs of it: far to the left gelu is x times a few last bits of a 1. A jump of
    many last bits is not round-off but a corner, such as that of a relu nearby: there the small steps are right.
    """
    if not changes:
        return 0.0
    smallest, right, left = changes[-1]
    slope, before = (right - left) / (2 * smallest), line.noise
    for step, right, left in reversed(changes):
        off = max(abs(right - slope * step), abs(left + slope * step))
        if off > 20 * before:  # a smooth bend grows by at most RATIO^4 from a step to the next
            return off if off <= 16 * line.last_bit else 0.0
        before = max(before, off)
    return 0.0


def _tableau(changes: list[tuple[float, float, float]], noise: float) -> Derivative:
    """The best entry of the tableau made of (step, L(step), L(-step))."""
    best = UNKNOWN
    previous: list[float] = []
    for k, (step, right, left) in enumerate(changes):
        row = [(right - left) / (2 * step)]
        for order, above in enumerate(previous[:5], start=1):
            row.append(row[-1] + (row[-1] - above) / ((changes[k - order][0] / step) ** 2 - 1))
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - above)) + 2 * noise / step
            if error < best.error:
                # Each one-sided slope with its own first-order error removed.
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
    """The round-off in L as it is seen.

    Over seven points this close a smooth function is a cubic to the last bit, so fourth differences are noise. Three
    spacings, since a function that moves by three last bits a point looks perfectly straight.

    Source: Moré, Wild, Estimating Computational Noise (2011).
    """
    noise = line.noise
    for spread in (1.0, 1.37, 2.71):
        spacing = _few_bits(spread * smallest / 3)
        values = np.array([line(j * spacing) if j else 0.0 for j in range(-3, 4)])
        if not np.all(np.isfinite(values)):
            break
        fourth = np.diff(values, 4)
        noise = max(noise, 2 * math.sqrt(float(np.mean(fourth * fourth)) / 70))
    return noise


def measure_stairs(line: Line) -> None:
    """Measure the round-off of a function that computes in less than float64, inside or at its end.

    Such a function does not change when the arrays move by 2^-40 of themselves, and changes when they move by 2^-9.
    """
    if line(2.0**-40) == 0.0 and line(2.0**-9) != 0.0:
        line.scalar.noise = _measured_noise(line, 2.0**-18)


def _few_bits(step: float) -> float:
    """The step rounded to 8 bits, so that x + step and x - step are mostly exact."""
    mantissa, exponent = math.frexp(step)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def is_kink(line: Line, derivative: Derivative, h: float) -> bool:
    """Whether the slopes to the left and right stay apart however small the step.

    For a smooth function their distance is L'' h and halves with h; at a corner it stays.
    """
    gaps: list[float] = []
    step = h
    for _ in range(5):
        right, left = line(step), line(-step)
        gap, unseen = abs(right + left) / step, max(200 * line.noise, 8 * line.last_bit) / step
        if gaps and gap <= unseen < 0.3 * gaps[0]:
            return False  # it could be seen, and is gone
        if not math.isfinite(gap) or gap <= unseen:
            break
        gaps.append(gap)
        step /= 16
    if len(gaps) < 3:
        return False
    size = max(abs(derivative.left), abs(derivative.right), abs(derivative.value))
    return gaps[-1] > 0.3 * gaps[0] and gaps[-1] > 1e-7 * size


def taylor_slope(line: Line, analytic: float) -> float | None:
    """How fast the Taylor remainder |L(h) - L(0) - h L'| falls with h: slope 2 if L' is right, about 1 if it is not.

    None when the remainder is lost in round-off, as for a linear function with the right gradient.
    """
    remainders = []
    for k in range(3, 22):
        h = 2.0**-k
        with np.errstate(all="ignore"):
            remainder = abs(line(h) - h * analytic)
        if not math.isfinite(remainder):
            continue
        if remainder <= 200 * line.noise:
            break
        remainders.append(remainder)
    if len(remainders) < 3:
        return None
    return math.log2(remainders[-3] / remainders[-1]) / 2
