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
LEVELS = 14  # halvings of the step in a refined derivative


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


def refined(line: Line, h: float, levels: int = LEVELS) -> Derivative:
    """Ridders' tableau from the step 8h down: the entry whose neighbours agree best, with that disagreement as error.

    The error is the larger of the two disagreements, since one of them may be small by accident, plus the round-off.
    """
    best = Derivative(math.nan, math.inf, math.nan, math.nan)
    previous: list[float] = []
    step = 8 * h
    rights: list[float] = []
    lefts: list[float] = []
    for _ in range(levels):
        right, left = line(step), line(-step)
        rights.append(right / step)
        lefts.append(-left / step)
        central = (right - left) / (2 * step)
        if not math.isfinite(central):  # outside the domain: start again with a smaller step
            previous, rights, lefts = [], [], []
            step /= 2
            continue
        row = [central]
        for order, above in enumerate(previous[:5], start=1):
            factor = 4.0**order
            row.append((factor * row[-1] - above) / (factor - 1))
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - above)) + 2 * line.noise / step
            if error < best.error:
                one_sided = (2 * lefts[-1] - lefts[-2], 2 * rights[-1] - rights[-2])
                best = Derivative(row[-1], error, *one_sided)
        if best.error <= 1e-13 * abs(best.value):
            break
        previous = row
        step /= 2
    return best


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
