"""Derivatives by differences, each with an honest estimate of its own error.

The central difference D(h) = (L(h) - L(-h)) / 2h is wrong by c2 h^2 + c4 h^4 + ..., plus round-off / h.
Richardson cancels the powers: (4 D(h/2) - D(h)) / 3 is wrong by h^4 only, and so on down a tableau (Ridders 1982).
Neighbours in the tableau that disagree tell how far to trust either.

Everything is float64, and L = sum(dy * y) is differenced output by output, so that outputs which stay still
bring no round-off. Source: C. Ridders, Accurate computation of F'(x) and F'(x)F''(x), Adv. Eng. Software 4 (1982).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Outputs = tuple[np.ndarray, ...]
Evaluate = Callable[[], Outputs]

EPS = float(np.finfo(np.float64).eps)
LEVELS = 20  # steps of a refined derivative
RATIO = 1.6  # of one step to the next


class Derivative(NamedTuple):
    """A derivative along a line, its error bar, and the slopes to the left and right (they differ at a kink)."""

    value: float
    error: float
    left: float
    right: float


class Line:
    """t -> sum(dy * (y(x + t v) - y(x))), where x is moved in place and always put back.

    `where` is the stretch of the flattened x that moves; `direction` is how far each element goes per unit of t.
    """

    def __init__(self, evaluate: Evaluate, x: np.ndarray, where: slice, direction: np.ndarray,
                 y: Outputs, dy: Outputs, noise: float) -> None:
        if not x.flags.c_contiguous:
            raise ValueError("Line: x must be C-contiguous, or moving it would move a copy")
        self.evaluate, self.x, self.direction = evaluate, x.reshape(-1)[where], direction
        self.y, self.dy, self.noise = y, dy, noise
        self.start = self.x.copy()
        self.calls = 0

    @property
    def last_bit(self) -> float:
        """The last bit of the largest number that is likely to stand in the computation of L."""
        one, steepest = 1.0, 0.0
        for y, dy in zip(self.y, self.dy):
            one = max(one, float(np.max(np.abs(y), initial=0.0)))
            steepest = max(steepest, float(np.max(np.abs(dy), initial=0.0)))
        return EPS * steepest * max(one, float(np.max(np.abs(self.start), initial=0.0)))

    def __call__(self, t: float) -> float:
        """The change of L at t."""
        np.add(self.start, t * self.direction, out=self.x)
        try:
            moved = self.evaluate()
        finally:
            self.x[...] = self.start
        self.calls += 1
        change = 0.0
        for y_t, y, dy in zip(moved, self.y, self.dy):
            y_t -= y
            y_t *= dy
            change += float(y_t.sum())
        return change


def noise_of(y: Outputs, dy: Outputs) -> float:
    """The round-off in L: half a last bit of every output, also of those that seem not to move, added like noise."""
    return EPS * math.sqrt(sum(float(np.sum((a * b) ** 2)) for a, b in zip(y, dy, strict=True)))


def first_step(value: float, rms: float) -> float:
    """A step small beside the value and its neighbours, never large beside 1, never lost in their round-off."""
    scale = max(abs(value), rms) or 1.0
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
        return Derivative(math.nan, math.inf, math.nan, math.nan)
    # One-sided slopes, each with its own first-order error removed.
    return Derivative(value, error, (-4 * left + far_left) / h, (4 * right - far_right) / h)


def refined(line: Line, h: float, levels: int = LEVELS, measure: bool = True) -> Derivative:
    """Ridders' tableau from the step 8h down: the entry whose neighbours agree best, with that disagreement as error.

    The error is the larger of the two disagreements, since one of them may be small by accident, plus the round-off,
    which is measured unless `measure` is off.
    """
    noise = _measured_noise(line, 8 * h * RATIO ** (1 - levels)) if measure else line.noise
    changes: list[tuple[float, float, float]] = []
    best = Derivative(math.nan, math.inf, math.nan, math.nan)
    for level in range(levels):
        step = _few_bits(8 * h * RATIO**-level)
        right, left = line(step), line(-step)
        if not math.isfinite(right - left):  # outside the domain: start again with a smaller step
            changes = []
            continue
        changes.append((step, right, left))
        best = _tableau(changes, noise)
        if best.error <= 1e-13 * abs(best.value):
            break
    stair = _stair(changes, line)
    return _tableau(changes, stair) if stair > noise else best


def _stair(changes: list[tuple[float, float, float]], line: Line) -> float:
    """The height of the stair where L, straight over the smallest steps, first jumps; 0 where it bends smoothly.

    Round-off inside a function makes stairs of it: far to the left gelu is x times a few last bits of a 1. A jump of
    many last bits is none of these, but a corner such as that of a relu that is off: there the small steps are right.
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
    best = Derivative(math.nan, math.inf, math.nan, math.nan)
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
                sides = ((ratio * new / step - old / before) / (ratio - 1)
                         for new, old in ((-left, -left_before), (right, right_before)))
                best = Derivative(row[-1], error, *sides)
        previous = row
    return best


def _measured_noise(line: Line, smallest: float) -> float:
    """The round-off in L as it is seen.

    Over seven points this close a smooth function is a cubic to the last bit, so fourth differences are noise. Three
    spacings, since a function that moves by three last bits a point looks perfectly straight.
    Source: Moré and Wild, Estimating computational noise, SIAM J. Sci. Comput. 33 (2011).
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


def _few_bits(step: float) -> float:
    """The step rounded to 8 bits, so that x + step and x - step are mostly exact."""
    mantissa, exponent = math.frexp(step)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def is_kink(line: Line, derivative: Derivative, h: float) -> bool:
    """Whether the slopes to the left and right stay apart however small the step.

    For a smooth function their distance is L'' h and halves with h; at a corner it stays.
    """
    gaps = []
    step = h
    for _ in range(3):
        right, left = line(step), line(-step)
        gap = abs(right + left) / step
        if not math.isfinite(gap) or gap <= 200 * line.noise / step:
            return False
        gaps.append(gap)
        step /= 16
    size = max(abs(derivative.left), abs(derivative.right), abs(derivative.value))
    return gaps[2] > 0.3 * gaps[0] and gaps[2] > 1e-7 * size


def taylor_slope(line: Line, claimed: float) -> float | None:
    """How fast the Taylor remainder |L(h) - L(0) - h L'| falls with h: slope 2 if L' is right, about 1 if it is not.

    None when the remainder is lost in round-off, as for a linear function with the right gradient.
    """
    remainders = []
    for k in range(3, 22):
        h = 2.0**-k
        with np.errstate(all="ignore"):
            remainder = abs(line(h) - h * claimed)
        if not math.isfinite(remainder):
            continue
        if remainder <= 200 * line.noise:
            break
        remainders.append(remainder)
    if len(remainders) < 3:
        return None
    return math.log2(remainders[-3] / remainders[-1]) / 2
