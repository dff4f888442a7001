"""Small arrays by differences: every element by its own, judged by its own error bar.

Four calls give a first derivative, good enough for nearly all elements. Those in doubt get a whole tableau, and those
still in doubt are looked at for a corner (`kinks.py`) and for round-off (`round_off.py`). An element is wrong when it
is off by more than its bar:

    bar = 8 (error of the difference + round-off of the claim) + floor

The floor is the round-off that no difference can see through.
"""

from collections.abc import Callable

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim, Move
from numpy_attention.gradcheck.numbers.differences import first_step, is_kink, quick, refined
from numpy_attention.gradcheck.numbers.kinks import allowed_at_corner
from numpy_attention.gradcheck.numbers.line import EPS, Line, Scalar, largest, rms
from numpy_attention.gradcheck.numbers.point import Point, Verdict
from numpy_attention.gradcheck.numbers.round_off import SAFETY, RoundOff, jumps
from numpy_attention.gradcheck.problems.problem import Arrays, in_float64
from numpy_attention.gradcheck.report import ArgumentReport

ENOUGH = 6  # so many elements that a tableau finds wrong: the others need none


def check_elements(point: Point, claim: Claim, chosen: np.ndarray | None = None) -> ArgumentReport:
    """Look at the elements that `chosen` marks; without it, at all. The others are NaN in the report."""
    x, scalar = point.exact[claim.name], point.scalar
    looked = np.flatnonzero(np.ones(x.size, dtype=bool) if chosen is None else chosen)
    lines = {int(i): scalar.line(x, slice(i, i + 1), np.ones(1)) for i in looked}
    steps, usual = np.ones(x.size), rms(x)
    for i in lines:
        steps[i] = first_step(float(x.reshape(-1)[i]), usual)
    beside = DifferencesBeside(point, claim.name, steps)
    claimed, jitter, error = claim.gradient.reshape(-1), claim.jitter.reshape(-1).copy(), np.zeros(x.size)
    found = Verdict.nothing(x.size)
    with np.errstate(all="ignore"):
        for i, line in lines.items():
            found.numeric[i], error[i], _, _ = quick(line, steps[i])
        known = claimed.copy()
        known[looked] = found.numeric[looked]
        size = largest(known[np.isfinite(known)])
        floor = 32 * scalar.eps * scalar.terms + 1e-11 * size
        least = floor + SAFETY * claim.base
        # In doubt: off by more than a tight tolerance, or than an error bar that four calls may have too short by luck.
        off = np.abs(claimed - found.numeric)
        tight = np.minimum(1e-8 * np.abs(found.numeric), SAFETY * (error + jitter))
        in_doubt = ~(off <= tight + least) | jumps(jitter, size) | ~(error <= 1e-6 * size)
        doubtful = looked[in_doubt[looked]]
        second = SecondLook(point, claim, RoundOff(point, beside), size, least)
        for i in map(int, doubtful[np.argsort(-np.nan_to_num(off[doubtful], nan=np.inf))]):
            second(i, lines[i], steps[i], found, error, jitter)
            if second.wrong >= ENOUGH:
                break
        found.doubt = SAFETY * (error + jitter) + floor
        # Not a bit has moved, or as good as none: what happens below the last bit of a 1 inside the function, as in
        # log(1 + 1e-20), is lost.
        unmoved = EPS * max(map(largest, scalar.dy), default=0.0)
        lost = np.where(np.abs(found.numeric) <= 16 * unmoved, SAFETY * unmoved / steps, 0.0)
        found.bar = found.doubt + SAFETY * claim.base + lost
        off = np.abs(claimed - found.numeric)
        found.wrong[looked] = ~(off <= found.bar)[looked]
        found.wrong &= ~found.kinks
        edges = _edges(lines, steps, claimed, found)
    for i, line in lines.items():
        found.doubt[i] = max(found.doubt[i] - SAFETY * line.last_bit / steps[i], 0.0)
    report = found.report(claim, beside.calls + sum(line.calls for line in lines.values()))
    if edges:
        report.notes.append(f"d{claim.name}: {edges} elements on the edge of the domain have no difference")
    return report


class SecondLook:
    """A whole tableau for an element in doubt; and if it is still off, is it a corner, or round-off?"""

    def __init__(self, point: Point, claim: Claim, round_off: RoundOff, size: float, least: float) -> None:
        self.point, self.claim, self.round_off, self.size, self.least = point, claim, round_off, size, least
        self.wrong = 0

    def __call__(
        self, i: int, line: Line, step: float, found: Verdict, error: np.ndarray, jitter: np.ndarray
    ) -> None:
        x, claimed = self.point.exact[self.claim.name], float(self.claim.gradient.reshape(-1)[i])
        derivative = refined(line, step)
        if np.isfinite(derivative.value):
            found.numeric[i], error[i] = derivative.value, derivative.error
        # At a corner the backward itself jumps when x is moved by an ulp: leave that jitter out of the question.
        bare = SAFETY * error[i] + self.least
        agrees, jumping = abs(claimed - found.numeric[i]) <= bare, jumps(jitter[i], self.size)
        corner = (jumping or not agrees) and is_kink(line, derivative, step)
        if corner and agrees:
            found.kinks[i] = True
        elif corner or (not agrees and (jumping or _tied(self.point.exact, x.reshape(-1)[i]))):
            found.kinks[i] = allowed_at_corner(self.point, self.claim.name, i, claimed, derivative)
        if corner or (jumping and agrees):
            jitter[i] = 0.0
        elif jumping and not found.kinks[i]:
            jitter[i] = self.round_off(self.claim, np.array([i]))[0]
        self.wrong += not found.kinks[i] and not abs(claimed - found.numeric[i]) <= bare + SAFETY * jitter[i]


def _edges(lines: dict[int, Line], steps: np.ndarray, claimed: np.ndarray, found: Verdict) -> int:
    """Excuse elements where the function ends and its slope grows beyond bounds; return how many there are.

    Where it cannot be computed to either side, nothing is known: that is no excuse.
    """
    edges = 0
    for i in map(int, np.flatnonzero(found.wrong & ~np.isfinite(found.numeric))):
        tiny = steps[i] * 2.0**-30
        found.wrong[i] = False
        if np.isfinite(lines[i](tiny)) or np.isfinite(lines[i](-tiny)):
            found.numeric[i], found.doubt[i] = np.nan, 0.0
            edges += 1
        else:
            found.numeric[i], found.doubt[i] = claimed[i], np.inf
    return edges


def _tied(exact: Arrays, value: float) -> bool:
    """Whether another element of any array has the same value."""
    return sum(int(np.sum(x == value)) for x in exact.values() if isinstance(x, np.ndarray)) > 1


class DifferencesBeside:
    """Derivatives by differences at moved arrays."""

    def __init__(self, point: Point, name: str, steps: np.ndarray) -> None:
        self.problem, self.name, self.steps = point.problem, name, steps
        self.calls = 0

    def __call__(self, move: Move) -> Callable[[int], float]:
        moved = in_float64(move.arrays)
        evaluate = self.problem.bind(moved)
        try:
            scalar = Scalar(evaluate, evaluate(), move.dy)
        except Exception:  # the move has left the domain
            return lambda i: np.nan

        def derivative(i: int) -> float:
            line = scalar.line(moved[self.name], slice(i, i + 1), np.ones(1))
            value = refined(line, self.steps[i]).value
            self.calls += line.calls
            return value

        return derivative
