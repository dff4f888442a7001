"""Compare a gradient with differences: element by element, at corners and ties, and in large arrays by directions.

Most gradients are compared with complex steps (`complex_step`) and do not need this module.

`check_elements`: four calls estimate the derivative well enough for nearly all elements. For the others, a whole
tableau is computed (`line`). If they are still in doubt, they are tested for a corner and for round-off
(`tolerance.RoundOff`).

At a corner (a kink) there is no derivative. We accept any slope between the slopes to the left and to the right. Where
several corners meet in one point, as in a sort with three equal numbers, we accept any slope between the slopes of the
smooth pieces around the point. A tie still has a derivative along the direction that moves all equal numbers together:

    max(2 + t, 2 + t) = 2 + t        so the two gradients must add up to 1: for example 1 and 0, or 1/2 and 1/2

A backward that gives dy to both numbers is right if one number moves, but wrong if both move together (`check_ties`).

`check_directions`: large arrays, by random directions and bisection. One derivative along a random direction v tests
all elements at once: it must be sum(dx * v). An error e in one element changes this sum by e |v_i|, in an array of any
size, and no v_i is small. The round-off of the sum limits the errors that can be found. So the check of a
large array is less precise than the check of a small array, but needs a few dozen calls instead of a million. If the
sum is wrong, the derivative along the left half of v shows which half is wrong, since the errors of both halves add
up: 20 halvings find one element among a million. With several wrong elements, the search goes on in the piece with the
largest error.
"""

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.line import (
    EPS,
    Derivative,
    Line,
    Scalar,
    first_step,
    is_kink,
    largest,
    quick,
    refined,
    rms,
)
from numpy_attention.gradcheck.problem import Problem, in_float64
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.tolerance import (
    SAFETY,
    AnalyticGradient,
    DerivativeOf,
    Move,
    Point,
    RoundOff,
    floor_of,
    judge,
    jumps,
    tolerance,
)

ENOUGH = 6  # once the closer check finds this many wrong elements, the others are not checked again
PIECES = 16  # number of random points around a corner
SLACK = 1e-3  # relative error of slopes next to a corner
AGREE = 1e-6  # relative to the terms or the slope: the allowed error of the sum over a tie

DIRECTIONS = 3
MORE = 3  # more directions, if the first ones meet corners
MOST_CALLS = 1000  # about so many calls for one array
LEVELS = 5  # step sizes for one derivative
FOUND = 12  # so many wrong elements are enough to show a pattern
CORNERS = 64  # at most so many elements at corners are compared one by one
SAMPLE = 48  # random elements that are compared one by one after an error was found

Along = Callable[[str, slice, np.ndarray], tuple[float, float]]  # `ComplexStep.along`


def check_elements(point: Point, analytic: AnalyticGradient, chosen: np.ndarray) -> ArgumentReport:
    """Compare the elements that `chosen` marks with differences; the others are NaN in the report."""
    name, found = analytic.name, ArgumentReport.unseen(analytic.name, analytic.gradient)
    x, scalar = point.exact[name], point.scalar
    lines = {int(i): scalar.line(x, slice(i, i + 1), np.ones(1)) for i in np.flatnonzero(chosen)}
    steps, error, usual = np.ones(x.size), np.zeros(x.size), rms(x)
    jitter = analytic.jitter.reshape(-1).copy()
    round_off = RoundOff(point, name, lambda move: _differences_at(move, point.problem, name, steps))
    with np.errstate(all="ignore"):
        for i, line in lines.items():
            steps[i] = first_step(float(x.reshape(-1)[i]), usual)
            found.numeric[i], error[i], _, _ = quick(line, steps[i])
        known = np.where(chosen, found.numeric, found.analytic)
        size = largest(known[np.isfinite(known)])
        floor = floor_of(scalar.eps, scalar.terms) + 1e-11 * size
        # In doubt: wrong by more than a tight tolerance, since the error of four calls may be estimated too small.
        off = np.abs(found.analytic - found.numeric)
        tight = np.minimum(1e-8 * np.abs(found.numeric), tolerance(error, jitter))
        near = off <= tight + tolerance(0.0, analytic.base, floor)
        in_doubt = ~near | jumps(jitter, size) | ~(error <= 1e-6 * size)
        doubtful, wrong = np.flatnonzero(in_doubt & chosen), 0
        for i in map(int, doubtful[np.argsort(-np.nan_to_num(off[doubtful], nan=np.inf))]):
            first = found.numeric[i], error[i], jitter[i]
            look = _look_closer(point, analytic, i, lines[i], steps[i], first, size, floor, round_off)
            found.numeric[i], error[i], jitter[i], found.kinks[i] = look
            allowed = tolerance(error[i], analytic.base + jitter[i], floor)
            wrong += not found.kinks[i] and not abs(found.analytic[i] - found.numeric[i]) <= allowed
            if wrong >= ENOUGH:
                break
        # If L hardly changes, a change may be lost inside the function, below the last bit of 1: log(1 + 1e-20).
        unmoved = EPS * max(map(largest, scalar.dy), default=0.0)
        lost = np.where(np.abs(found.numeric) <= 16 * unmoved, SAFETY * unmoved / steps, 0.0)
        judge(found, analytic, chosen, error, jitter, floor, lost)
        edges = _edges(lines, steps, found)
    for i, line in lines.items():
        found.doubt[i] = max(found.doubt[i] - SAFETY * line.last_bit / steps[i], 0.0)
    found.calls = round_off.calls + sum(line.calls for line in lines.values())
    if edges:
        found.notes.append(f"d{name}: {edges} elements at the end of the domain have no derivative")
    return found.shaped(analytic.gradient.shape)


def _look_closer(
    point: Point, analytic: AnalyticGradient, i: int, line: Line, step: float, first: tuple[float, float, float],
    size: float, floor: float, round_off: RoundOff,
) -> tuple[float, float, float, bool]:
    """Compute a whole tableau for an element in doubt; if it still disagrees, test for a corner and for round-off.

    Takes and returns the derivative, its error and the round-off of the gradient; returns also whether there is a
    corner, and the gradient is one of its slopes.
    """
    x, gradient = point.exact[analytic.name], float(analytic.gradient.reshape(-1)[i])
    (value, error, jitter), kink = first, False
    derivative = refined(line, step)
    if np.isfinite(derivative.value):
        value, error = derivative.value, derivative.error
    # At a corner the gradient jumps when x moves by a last bit: ignore this jitter.
    agrees = abs(gradient - value) <= tolerance(error, analytic.base, floor)
    jumping = jumps(jitter, size)
    tied = sum(int(np.sum(other == x.flat[i])) for other in point.exact.values() if isinstance(other, np.ndarray))
    corner = (jumping or not agrees) and is_kink(line, derivative, step)
    if corner and agrees:
        kink = True
    elif corner or (not agrees and (jumping or tied > 1)):
        kink = allowed_at_corner(point, analytic.name, i, gradient, derivative)
    if corner or (jumping and agrees):
        jitter = 0.0
    elif jumping and not kink:
        jitter = round_off(np.array([i]))[0]
    return value, error, jitter, kink


def _edges(lines: dict[int, Line], steps: np.ndarray, found: ArgumentReport) -> int:
    """Accept wrong elements at the end of the domain, where the slope may be infinite; return their number.

    If the function cannot be computed on either side of an element, the element is unresolved instead.
    """
    edges = 0
    for i in map(int, np.flatnonzero(found.wrong & ~np.isfinite(found.numeric))):
        tiny = steps[i] * 2.0**-30
        found.wrong[i] = False
        if np.isfinite(lines[i](tiny)) or np.isfinite(lines[i](-tiny)):
            found.numeric[i], found.doubt[i] = np.nan, 0.0
            edges += 1
        else:
            found.numeric[i], found.doubt[i] = found.analytic[i], np.inf
    return edges


def allowed_at_corner(point: Point, name: str, i: int, gradient: float, found: Derivative) -> bool:
    """Whether there is a corner at element i, and the gradient lies between the slopes next to it.

    One of three equal numbers may move alone without changing the median: then only nearby points show the corner.
    """
    low, high = sorted((found.left, found.right))
    if low < high and low - SLACK * (high - low) <= gradient <= high + SLACK * (high - low):
        return True
    slopes, known = _of_pieces(point, name, i)
    low, high = float(np.min(slopes, initial=math.inf)), float(np.max(slopes, initial=-math.inf))
    apart = high - low > max(SLACK * max(abs(low), abs(high)), known)
    return apart and low - SLACK * (high - low) <= gradient <= high + SLACK * (high - low)


def _of_pieces(point: Point, name: str, i: int) -> tuple[np.ndarray, float]:
    """Derivatives for element i at random points nearby, on the smooth pieces that meet here; and their round-off."""
    exact, rng = point.exact, np.random.default_rng(i)
    floats = {other: x for other, x in exact.items() if isinstance(x, np.ndarray) and x.dtype == np.float64}
    step = 2.0**-20 * (rms(exact[name]) or 1.0)
    slopes, known = [], math.inf
    for _ in range(PIECES):
        moved = {other: np.asarray(x + step * rng.standard_normal(x.shape)) for other, x in floats.items()}
        evaluate = point.problem.bind(exact | moved)
        try:
            nearby = Scalar(evaluate, evaluate(), point.scalar.dy)
        except Exception:  # outside the domain
            continue
        line = nearby.line(moved[name], slice(i, i + 1), np.ones(1))
        slopes.append((line(step / 64) - line(-step / 64)) / (step / 32))
        known = 16 * line.last_bit / (step / 64)
    return np.array([slope for slope in slopes if np.isfinite(slope)]), known


def check_ties(point: Point, reports: dict[str, ArgumentReport]) -> int:
    """Mark gradients at ties whose sum over all equal numbers is wrong; return the number of calls."""
    exact, scalar, kept, calls = point.exact, point.scalar, point.problem.kept, 0
    for value in {float(x) for name, report in reports.items() for x in exact[name][report.kinks]}:
        at_kinks = {name: report.kinks & (exact[name] == value) for name, report in reports.items()}
        # All equal numbers move, also a number without a corner, such as the middle one of three in a sort.
        tied = {name: (exact[name] == value) & kept(name) for name, where in at_kinks.items() if where.any()}
        if sum(int(where.sum()) for where in tied.values()) < 2:
            continue
        line = scalar.through((exact[name] for name in tied), (where.astype(np.float64) for where in tied.values()))
        step = first_step(value, 0.0)
        with np.errstate(all="ignore"):
            found = refined(line, step, levels=8)
            total = sum(float(reports[name].analytic[where].sum()) for name, where in tied.items())
            slack = AGREE * max(scalar.terms, abs(total), abs(found.value))
            smooth = found.error <= slack and not is_kink(line, found, step)
        calls += line.calls
        if not smooth or abs(total - found.value) <= tolerance(found.error, 0.0, slack):
            continue
        for name in tied:
            report, where = reports[name], at_kinks[name]
            report.wrong, report.kinks = report.wrong | where, report.kinks & ~where
            report.tie = (
                f"d{name}: a tie: if all numbers equal to {value:.6g} move together, the derivative is "
                f"{found.value:.6g}, but their gradients add up to {total:.6g}: give dy to one of them, or share dy"
            )
    return calls


def _differences_at(move: Move, problem: Problem, name: str, steps: np.ndarray) -> DerivativeOf:
    """Derivatives by differences at moved arrays."""
    arrays = in_float64(move.arrays)
    evaluate = problem.bind(arrays)
    scalar = Scalar(evaluate, evaluate(), move.dy)

    def derivative(i: int) -> tuple[float, int]:
        line = scalar.line(arrays[name], slice(i, i + 1), np.ones(1))
        return refined(line, steps[i]).value, line.calls

    return derivative


class Search:
    """One random direction: derivative and analytic gradient along pieces of it."""

    def __init__(
        self, scalar: Scalar, x: np.ndarray, analytic: AnalyticGradient, rng: np.random.Generator, along: Along | None,
        smooth: np.ndarray,
    ) -> None:
        self.scalar, self.x, self.analytic, self.along = scalar, x, analytic, along
        # v_i is never near zero and has many sizes, so two errors do not cancel; elements at corners do not move.
        self.v = rng.choice([-1.0, 1.0], x.size) * rng.uniform(1.0, 1.5, x.size) * smooth
        self.step = 0.25 * first_step(0.0, rms(x))
        self.rounding = np.where(smooth, analytic.base + analytic.jitter.reshape(-1), 0.0) ** 2
        self.calls = 0

    def derivative(self, low: int, high: int, unit: bool = False) -> tuple[float, float]:
        """The derivative along the piece [low, high) of the direction, and its error."""
        where = slice(low, high)
        v = np.ones(high - low) if unit else self.v[where]
        if self.along is not None:
            self.calls += 1
            value, terms = self.along(self.analytic.name, where, v)
            return value, 4 * EPS * max(self.scalar.terms, terms)
        line = self.scalar.line(self.x, where, v)
        with np.errstate(all="ignore"):
            found = refined(line, self.step, LEVELS, measure=False)
        self.calls += line.calls
        return found.value, found.error

    def disagreement(self, low: int, high: int) -> tuple[float, float]:
        """Gradient minus derivative along the piece, and the tolerance of this difference."""
        gradient = self.analytic.gradient.reshape(-1)[low:high]
        value, error = self.derivative(low, high)
        terms = gradient * self.v[low:high]
        rounding = float(np.sqrt(self.rounding[low:high].sum() * 2 + (EPS * np.linalg.norm(terms)) ** 2))
        floor = floor_of(self.scalar.eps, self.scalar.terms)
        return float(terms.sum()) - value, tolerance(error, rounding, floor)


def check_directions(
    point: Point, analytic: AnalyticGradient, rng: np.random.Generator, along: Along | None = None
) -> ArgumentReport:
    """Test the whole array along random directions: with complex steps if `along` is given, else with differences.

    If a test fails, find wrong elements, in at most about `MOST_CALLS` calls. Some of the elements at which the
    gradient jumps when inputs move, as at corners, are compared one by one.
    """
    x, kept = point.exact[analytic.name], point.problem.kept(analytic.name).reshape(-1)
    corners = at_corners(x, analytic)
    found = ArgumentReport.unseen(analytic.name, analytic.gradient)
    calls, resolution, failed = 0, 0.0, False
    for _ in range(DIRECTIONS + MORE):
        search = Search(point.scalar, x, analytic, rng, along, kept & ~corners)
        off, resolution = search.disagreement(0, x.size)
        failed = not abs(off) <= resolution
        if failed:
            _bisect(search, off, resolution, found, MOST_CALLS - calls)
        calls += search.calls
        if failed and found.wrong.any():  # is this a corner that the moves did not find?
            by_elements = check_elements(point, analytic, found.wrong)
            calls += by_elements.calls
            met = found.wrong & by_elements.kinks.reshape(-1)
            found.kinks |= met
            found.wrong &= ~met
            corners = at_corners(x, analytic, met | corners)
            failed = not met.any() or bool(found.wrong.any())
        if failed:
            break
    found.doubt[:] = resolution / x.size**0.5
    found.calls, found.reference = calls, "differences" if along is None else "complex step"
    report = found.shaped(analytic.gradient.shape)
    if not failed:
        report.by_direction = abs(off) / max(float(np.linalg.norm(analytic.gradient)), 1e-300)
        report.notes.append(
            f"d{analytic.name}: {x.size} elements, {DIRECTIONS} random directions, {calls} calls; this finds an "
            f"error of {resolution:.1e} in one element (typical size {rms(analytic.gradient):.1e})"
        )
    elif not found.wrong.any():
        # The gradient is wrong along the direction, but no single wrong element was found.
        report.notes.append(
            f"d{analytic.name}: wrong along a random direction by {abs(off):.1e}, resolution {resolution:.1e}"
        )
        report.wrong.reshape(-1)[int(np.argmax(np.abs(analytic.gradient)))] = True
    if (corners := corners & kept).any():
        some = np.zeros(x.size, dtype=bool)
        some[np.flatnonzero(corners)[:CORNERS]] = True
        by_elements = check_elements(point, analytic, some)
        compared = some.reshape(x.shape)
        for field in ("numeric", "resolution", "wrong", "kinks", "doubt"):
            setattr(report, field, np.where(compared, getattr(by_elements, field), getattr(report, field)))
        report.calls += by_elements.calls
    return report


def at_corners(x: np.ndarray, analytic: AnalyticGradient, known: Any = False) -> np.ndarray:
    """Mark elements at which the gradient jumps if inputs move by a few last bits, and all elements equal to them."""
    flat = x.reshape(-1)
    jumping = jumps(analytic.jitter.reshape(-1), largest(analytic.gradient)) | known
    return np.isin(flat, flat[jumping])


def _bisect(search: Search, off: float, resolution: float, found: ArgumentReport, most_calls: int) -> None:
    """Halve the piece with the largest error again and again, down to single wrong elements."""

    def compare(i: int) -> None:
        found.numeric[i], error = search.derivative(i, i + 1, unit=True)
        rounding = search.analytic.base + search.analytic.jitter.reshape(-1)[i]
        found.resolution[i] = tolerance(error, rounding, floor_of(search.scalar.eps, search.scalar.terms))
        found.wrong[i] = not abs(found.analytic[i] - found.numeric[i]) <= found.resolution[i]

    queue = [(-abs(off), 0, search.x.size, off, resolution)]
    count = 0
    while queue and search.calls < most_calls and count < FOUND:
        _, low, high, off, resolution = heapq.heappop(queue)
        if high - low == 1:
            compare(low)
            count += bool(found.wrong[low])
            continue
        middle = (low + high) // 2
        left, known_left = search.disagreement(low, middle)
        right, known_right = off - left, resolution + known_left  # the errors of both halves add up
        if abs(right) > known_left and abs(right) <= known_right:
            right, known_right = search.disagreement(middle, high)
        for part in ((low, middle, left, known_left), (middle, high, right, known_right)):
            if not abs(part[2]) <= part[3]:
                heapq.heappush(queue, (-abs(part[2]), *part))
    if not queue and count < FOUND:
        return  # these few elements explain the whole error
    rng = np.random.default_rng(0)
    moving = np.flatnonzero(search.v)
    for i in rng.choice(moving, min(SAMPLE, moving.size), replace=False):
        if np.isnan(found.numeric[i]):
            compare(int(i))
