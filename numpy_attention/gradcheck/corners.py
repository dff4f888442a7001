"""Corners and ties: where no derivative exists, which gradients are right?

At a corner, as of relu at zero, any slope between the slopes to the left and to the right is right. Several corners may
meet in one point: max(x[0], x[1]) and max(x[1], x[2]) of three equal numbers. Each output has its own corner there, and
a backward may choose a side for each. So the slopes of each output are collected, and the gradient must lie between

    sum over outputs of min(dy * slopes)    and    sum over outputs of max(dy * slopes)

One of three equal numbers may move alone without changing the median: then only nearby points show the corner. So the
slopes of the smooth pieces around the point count too. At a corner the slopes stay apart, however near the pieces are;
for a smooth function they approach each other.

A tie still has a derivative along the direction that moves all equal numbers together:

    max(2 + t, 2 + t) = 2 + t        so the two gradients must add up to 1: for example 1 and 0, or 1/2 and 1/2

A backward that gives dy to both numbers is right if one number moves, but wrong if both move together (`check_ties`).
"""

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from numpy_attention.gradcheck.derivative import SAFETY, Derivative, Line, Scalar, first_step, refined, rms, sizes
from numpy_attention.gradcheck.report import ArgumentReport

if TYPE_CHECKING:
    from numpy_attention.gradcheck.compare import Point

PIECES = 32  # number of random points around a corner
NEARER = 2.0**-8  # the second distance, relative to the first: over it, the bend of a smooth function vanishes
STAYS = 0.5  # at a corner, this share of the distance between the slopes is left
AGREE = 1e-6  # relative to the terms or the slope: the allowed error of the sum over a tie


def slopes_around(point: "Point", name: str, i: int, found: Derivative, gradient: float) -> tuple[float, float]:
    """The smallest and the largest slope for one element at a corner; equal numbers, if there is no corner.

    A gradient between the slopes of the two sides is right. Only otherwise, the pieces around are examined, too.
    """
    x, low, high = point.exact[name], 0.0, 0.0
    h = min(found.step / 4 or np.inf, first_step(float(x.reshape(-1)[i]), rms(x)) / 16)
    for pieces in (0, PIECES):
        far, near = _slopes(point, name, i, h, pieces), _slopes(point, name, i, NEARER * h, pieces)
        apart, before, noise = near[1] - near[0], far[1] - far[0], near[2]
        if apart > noise and STAYS * before < apart < before / STAYS:  # round-off would grow
            low, high = near[:2]
        if low < gradient < high:
            break
    return low, high


def _slopes(point: "Point", name: str, i: int, h: float, pieces: int) -> tuple[float, float, float]:
    """The smallest and the largest slope over a distance h, from the choices of each output; and their round-off."""
    here = point.scalar.line(point.exact[name], slice(i, i + 1), np.ones(1))
    slopes = [_of_outputs(here, 0.0, side * h) for side in (1, -1)]
    rng = np.random.default_rng(i)
    scale = h / float(sizes(point.exact[name]).reshape(-1)[i])
    floats = point.problem.with_gradient
    noise = here.noise
    for _ in range(pieces):
        moved = {}
        for other in floats:
            x = point.exact[other]
            step = scale * sizes(x) * rng.standard_normal(x.shape) * point.problem.kept(other)
            moved[other] = np.asarray(x + step)
        with contextlib.suppress(Exception):  # outside the domain
            evaluate = point.problem.bind(point.exact | moved)
            nearby = Scalar(evaluate, evaluate(), point.scalar.dy, point.scalar.least_noise)
            line = nearby.line(moved[name], slice(i, i + 1), np.ones(1))
            slopes.append(_of_outputs(line, -h / 64, h / 64))
            noise = max(noise, 32 * line.noise)
    every = np.array([one for one in slopes if one is not None and np.isfinite(one).all()])
    if not len(every):
        return 0.0, 0.0, 0.0
    return float(every.min(axis=0).sum()), float(every.max(axis=0).sum()), 8 * noise / h


def _of_outputs(line: Line, start: float, end: float) -> np.ndarray | None:
    """The slope of dy * y between two points of a line, for each element of the outputs."""
    first, last = line.changes(start), line.changes(end)
    if first is None or last is None:
        return None
    return np.concatenate([np.ravel(b - a) for a, b in zip(first, last)]) / (end - start)


def corner_in_words(point: "Point", found: ArgumentReport, i: int, low: float, high: float) -> str:
    """The mistake of a gradient that lies outside the slopes around a corner."""
    return (
        f"{found.symbol} is wrong where {found.name} == {point.exact[found.name].reshape(-1)[i]:.6g}, at a corner: not "
        f"differentiable here, but right are only slopes from {low:.6g} to {high:.6g}, not {found.analytic[i]:.6g}"
    )


def check_ties(point: "Point", reports: dict[str, ArgumentReport]) -> None:
    """Mark gradients at ties whose sum over all equal numbers is wrong."""
    exact, scalar, kept = point.exact, point.scalar, point.problem.kept
    for value in {float(x) for name, report in reports.items() for x in exact[name][report.kinks]}:
        at_kinks = {name: report.kinks & (exact[name] == value) for name, report in reports.items()}
        # All equal numbers move, also a number without a corner, such as the middle one of three in a sort.
        tied = {name: (exact[name] == value) & kept(name) for name, where in at_kinks.items() if where.any()}
        if sum(int(where.sum()) for where in tied.values()) < 2:
            continue
        line = scalar.through((exact[name] for name in tied), (where.astype(np.float64) for where in tied.values()))
        h = first_step(value, 0.0)
        with np.errstate(all="ignore"):
            found = refined(line, h)
            total = sum(float(reports[name].analytic[where].sum()) for name, where in tied.items())
            slack = AGREE * max(scalar.terms, abs(total), abs(found.value))
            smooth = found.error <= slack and abs(found.right - found.left) <= 1e-3 * abs(found.value) + slack
        if not smooth or abs(total - found.value) <= SAFETY * found.error + slack:
            continue
        for name in tied:
            report, where = reports[name], at_kinks[name]
            report.wrong, report.kinks = report.wrong | where, report.kinks & ~where
            report.tie = (
                f"{report.symbol}: a tie: if all numbers equal to {value:.6g} move together, the derivative is "
                f"{found.value:.6g}, but their gradients add up to {total:.6g}: give dy to one of them, or share dy"
            )
