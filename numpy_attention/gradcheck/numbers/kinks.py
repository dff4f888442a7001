"""Corners: where a function has no derivative, what may a backward say?

At a corner (relu at zero, a tie in a maximum) the slope to the left is another than the slope to the right, however
small the step. Any slope between the two is accepted; and, where several corners meet in one point, as in a sort with
three equal numbers, any between the slopes of the smooth pieces around it.

A tie has a derivative all the same along the direction that moves all equal numbers together:

    max(2 + t, 2 + t) = 2 + t        so the two gradients must add up to 1: one of them gets it, or they share it

A backward that hands dy to both is right for each of the two alone, and wrong for both at once.
"""

import math

import numpy as np

from numpy_attention.gradcheck.numbers.differences import Derivative, first_step, is_kink, refined
from numpy_attention.gradcheck.numbers.line import Scalar, rms
from numpy_attention.gradcheck.numbers.point import Point
from numpy_attention.gradcheck.report import ArgumentReport

PIECES = 16  # so many pieces around a corner are looked at
SLACK = 1e-3  # slopes beside a corner are known so well
AGREE = 1e-6  # relative to the terms, or the slope: so well the sum over a tie must agree, and its difference be known


def allowed_at_corner(point: Point, name: str, i: int, claimed: float, found: Derivative) -> bool:
    """Whether there is a corner at element i, and the claim is one of the slopes beside it or in between.

    Of three equal numbers one may move alone without the median's noticing: then the corner is seen from beside only.
    """
    low, high = sorted((found.left, found.right))
    if low < high and low - SLACK * (high - low) <= claimed <= high + SLACK * (high - low):
        return True
    slopes, known = _of_pieces(point, name, i)
    low, high = float(np.min(slopes, initial=math.inf)), float(np.max(slopes, initial=-math.inf))
    apart = high - low > max(SLACK * max(abs(low), abs(high)), known)
    return apart and low - SLACK * (high - low) <= claimed <= high + SLACK * (high - low)


def _of_pieces(point: Point, name: str, i: int) -> tuple[np.ndarray, float]:
    """The derivative by element i at places close by, chosen at random: on the smooth pieces that meet here.

    And how far round-off alone may drive them apart.
    """
    exact, scalar, rng = point.exact, point.scalar, np.random.default_rng(i)
    names = [other for other, x in exact.items() if isinstance(x, np.ndarray) and x.dtype == np.float64]
    kept = {other: exact[other].copy() for other in names}
    step = 2.0**-20 * (rms(exact[name]) or 1.0)
    slopes, known = [], math.inf
    try:
        for _ in range(PIECES):
            for other, x in kept.items():
                exact[other][...] = x + step * rng.standard_normal(x.shape)
            try:
                beside = Scalar(scalar.evaluate, scalar.evaluate(), scalar.dy)
            except Exception:  # outside the domain
                continue
            line = beside.line(exact[name], slice(i, i + 1), np.ones(1))
            slopes.append((line(step / 64) - line(-step / 64)) / (step / 32))
            known = 16 * line.last_bit / (step / 64)
    finally:
        for other, x in kept.items():
            exact[other][...] = x
    return np.array([slope for slope in slopes if np.isfinite(slope)]), known


def check_ties(point: Point, reports: dict[str, ArgumentReport]) -> int:
    """Mark claims at kinks whose sum over equal numbers is wrong though it has a derivative; return the calls."""
    exact, scalar, calls = point.exact, point.scalar, 0
    for value in {float(x) for name, report in reports.items() for x in exact[name][report.kinks]}:
        at_kinks = {name: report.kinks & (exact[name] == value) for name, report in reports.items()}
        # All equal numbers move, those too that are at no kink alone: one of three in the middle of a sort, say.
        tied = {name: exact[name] == value for name, where in at_kinks.items() if where.any()}
        if sum(int(where.sum()) for where in tied.values()) < 2:
            continue
        line = scalar.through((exact[name] for name in tied), (where.astype(np.float64) for where in tied.values()))
        step = first_step(value, 0.0)
        with np.errstate(all="ignore"):
            found = refined(line, step, levels=8)
            claimed = sum(float(reports[name].analytic[where].sum()) for name, where in tied.items())
            slack = AGREE * max(scalar.terms, abs(claimed), abs(found.value))
            smooth = found.error <= slack and not is_kink(line, found, step)
        calls += line.calls
        if not smooth or abs(claimed - found.value) <= slack + 8 * found.error:
            continue
        for name in tied:
            report, where = reports[name], at_kinks[name]
            report.wrong, report.kinks = report.wrong | where, report.kinks & ~where
            report.tie = (
                f"d{name}: a tie: the equal numbers {value:.6g} moved together have a derivative, {found.value:.6g}, "
                f"and their gradients add up to {claimed:.6g}: give dy to one of them, or share it"
            )
    return calls
