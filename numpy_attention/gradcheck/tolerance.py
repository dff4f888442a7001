"""The tolerance of the checker is made here: how far the analytic gradient of an element may be off.

    tolerance = 8 (error of the derivative + round-off of the gradient) + floor

    error        of a difference, which comes with an estimate (`differences`); 0 for a complex step
    round-off    of the backward: for all elements `base`, which also holds the caller's rtol and atol; for each
                 element `jitter`, its change when the inputs move by a few last bits (`claims`)
    floor        32 last bits of the terms |dy y|: the round-off of the sum L, which no derivative of L can see through

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

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.claims import Claim, Move, Point, moved_by
from numpy_attention.gradcheck.line import Scalar, largest
from numpy_attention.gradcheck.report import ArgumentReport

SAFETY = 8.0  # errors and round-off are estimates: a right gradient is off by at most so many of them
JUMP = 1e-9  # a jitter that is a larger share of the gradient is measured again
RESOLVED = 1e-4  # of the gradient's size: an element whose derivative is known less well is not called right
MANY = 64  # elements of an array that show what most of them need

FURTHER = (2**16, 2**16, 2**26, 2**26)  # last bits
FAR = (2**38, 2**38, 2**41, 2**41)  # for what is as small as round-off can be, and may lie on a long stair

Derivative = Callable[[int], tuple[float, int]]  # of one element, and the calls that it took


def tolerance(error: Any, round_off: Any, floor: float = 0.0) -> Any:
    """How far a gradient may be off a derivative that is known up to `error`."""
    return SAFETY * (error + round_off) + floor


def floor_of(eps: float, *terms: float) -> float:
    """The round-off of a sum of terms of this size."""
    return 32 * eps * max(terms)


def allow(claim: Claim, rtol: float, atol: float) -> None:
    """Add the caller's tolerances, relative to the largest element and absolute."""
    claim.base += (atol + rtol * largest(claim.gradient)) / SAFETY


def jumps(jitter: Any, size: float) -> Any:
    """Where the jitter is large compared with the size of the gradient."""
    return jitter > JUMP * size


class RoundOff:
    """How much gradient minus derivative scatters around the point; `derivative_at` a move gives derivatives there."""

    def __init__(self, point: Point, derivative_at: Callable[[Move], Derivative | None]) -> None:
        self.point, self.derivative_at, self.calls = point, derivative_at, 0
        self.known: dict[tuple[int, ...], list[tuple[Move, Derivative | None]]] = {}

    def __call__(self, claim: Claim, elements: np.ndarray, ulps: tuple[int, ...] = FURTHER) -> np.ndarray:
        """The spread for each of these elements, over the moves that moved it; infinite where it is unknown."""
        x, moves = self.point.exact[claim.name], self._moves(ulps)
        off = np.full((len(moves) + 1, elements.size), np.nan)
        for k, (move, derivative) in enumerate(moves):
            grad = move.grads.get(claim.name)
            if grad is None or derivative is None:
                continue
            moved = (move.arrays[claim.name] != x).reshape(-1)[elements]
            for n in np.flatnonzero(moved):
                value, calls = derivative(int(elements[n]))
                off[k, n] = float(grad.reshape(-1)[elements[n]]) - value
                self.calls += calls
        spread: np.ndarray = np.fmax.reduce(off) - np.fmin.reduce(off)
        return np.where(np.isfinite(spread), spread, np.inf)

    def _moves(self, ulps: tuple[int, ...]) -> list[tuple[Move, Derivative | None]]:
        near = self.point.moves
        if ulps not in self.known and near:
            rng = np.random.default_rng(len(near[0].arrays))
            further = moved_by(ulps, self.point.problem, near[0].arrays, near[0].dy, rng)
            self.known[ulps] = [(move, self.derivative_at(move)) for move in [*near, *further]]
        return self.known.get(ulps, [])


def hold_to_float64(report: ArgumentReport, low: Claim) -> None:
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
    scalar: Scalar, found: list[Claim], reports: dict[str, ArgumentReport], rtol: float, atol: float
) -> None:
    """Set the size to which errors are relative, and mark the elements whose derivative is known to too few digits."""
    of_all = max((report.largest for report in reports.values()), default=0.0)
    for claim in found:
        report = reports[claim.name]
        report.size = max(report.largest, 1e-3 * of_all, 1e-6 * scalar.terms) or 1.0
        vague = report.doubt > max(RESOLVED, rtol, 100 * claim.eps, 100 * scalar.eps) * report.size + atol
        report.unresolved = vague & ~report.wrong & ~report.kinks & np.isfinite(report.numeric)
