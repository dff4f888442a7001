"""Every element of a gradient compared with its derivative.

`check_exactly`: by complex steps, where differences confirm them. A random direction through all arrays at once
decides: along it, the derivative of the complex step must be the one that differences find. An element in which the
complex step errs moves the sum by that error, and none is left out: all elements move alike or, where no step suits
them all, each in proportion to its size (`confirmed`). Then one call an element gives the derivative to the last digit.

`check_elements`: by differences. Four calls give a first derivative, good enough for nearly all elements. The others
get a whole tableau; those still in doubt are looked at for a corner (`differences`) and for round-off (`tolerance`).

Either way an element that is off gets a second look, a `Look`, before it is called wrong. The second look of the
complex step asks differences: at a corner other gradients are right as well, and where differences contradict the
complex step, it is not used at all.

`check_directions`: large arrays, by random directions and bisection. One derivative along a random direction v tests
all elements at once: it must be sum(dx * v). An error e in one element moves that sum by e |v_i|, however many elements
there are, and no v_i is small. The round-off of the sum limits what can be seen, so a large array is checked less
sharply than a small one, in a few dozen calls instead of a million. When the sum disagrees, the left half of the same
direction tells which half is wrong, since disagreements along one direction add: 20 halvings find one element among a
million. Several wrong elements are followed at once, the piece with the largest disagreement first.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.claims import Claim, Move, Point
from numpy_attention.gradcheck.complex_step import ComplexStep, NoComplexStep
from numpy_attention.gradcheck.differences import allowed_at_corner, first_step, is_kink, quick, refined
from numpy_attention.gradcheck.line import EPS, Line, Scalar, largest, rms, sizes
from numpy_attention.gradcheck.problem import Arrays, in_float64
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.tolerance import FAR, SAFETY, Derivative, RoundOff, floor_of, jumps, tolerance

ENOUGH = 6  # so many elements that a second look finds wrong: the others need none
ATTEMPTS = ((2.0**-11, 6), (2.0**-11, 20), (2.0**-25, 20))  # first step and levels; smaller ones pass corners nearby
ROUNDED = 1e-2  # no round-off is a larger share of the gradient, unless the gradient jumps
RESOLVED = 1e-5  # a difference whose error is a larger share of the terms confirms nothing

DIRECTIONS = 3
MORE = 3  # if corners were met along these
LEVELS = 5  # step sizes for one derivative
FOUND = 12  # so many wrong elements are enough to show a pattern
CORNERS = 64  # so many elements at corners are looked at one by one
SAMPLE = 48  # elements looked at one by one once something is wrong


class Look(NamedTuple):
    """What a second look finds about one element, or about several: numbers, or arrays."""

    derivative: Any
    error: Any  # of the derivative
    jitter: Any  # of the gradient, as far as it is round-off
    kink: Any  # whether this is a corner, and the gradient one of its slopes


def check_exactly(
    point: Point, claim: Claim, step: ComplexStep, chosen: np.ndarray | None = None
) -> ArgumentReport | None:
    """Compare the elements that `chosen` marks, all without it, with complex steps; the others are NaN in the report.

    None where differences contradict the complex step.
    """
    found, before = ArgumentReport.unseen(claim.name, claim.gradient), step.calls
    looked, terms = _looked(found, chosen), np.zeros(found.wrong.size)
    for i in np.flatnonzero(looked):
        found.numeric[i], terms[i] = step.along(claim.name, slice(i, i + 1), np.ones(1))
    floor = floor_of(EPS, point.scalar.terms, largest(terms))
    off = np.abs(found.analytic - found.numeric)
    near = off <= tolerance(0.0, claim.base, floor)
    size = max(largest(found.analytic), largest(found.numeric[looked]))
    # A gradient that jumps is wrong at this very point, or right: its change nearby is not round-off.
    jitter = claim.jitter.reshape(-1)
    jumping = jumps(jitter, size) & ~near
    jitter = np.where(jumping | near, 0.0, jitter)
    _judge(found, claim, looked, 0.0, jitter, floor)
    left = np.flatnonzero(found.wrong)
    left = left[np.argsort(-np.nan_to_num(off[left], nan=np.inf))]
    round_off = RoundOff(point, _complex_steps_at(point, claim.name))
    while left.size:  # a few at a time: where all of them are wrong, the others need no second look
        some, left = left[:ENOUGH], left[ENOUGH:]
        look = _look_with_differences(point, claim, found, some, jumping[some], jitter[some], size, floor, round_off)
        if look is None:
            return None
        _, _, jitter[some], found.kinks[some] = look
        _judge(found, claim, looked, 0.0, jitter, floor)
        if found.wrong[some].all():
            break
    found.calls += step.calls - before + round_off.calls
    found.witness = "complex step"
    return found.shaped(claim.gradient.shape)


def check_elements(point: Point, claim: Claim, chosen: np.ndarray | None = None) -> ArgumentReport:
    """Compare the elements that `chosen` marks, all without it, with differences; the others are NaN in the report."""
    found = ArgumentReport.unseen(claim.name, claim.gradient)
    x, scalar, looked = point.exact[claim.name], point.scalar, _looked(found, chosen)
    lines = {int(i): scalar.line(x, slice(i, i + 1), np.ones(1)) for i in np.flatnonzero(looked)}
    steps, error, usual = np.ones(x.size), np.zeros(x.size), rms(x)
    for i in lines:
        steps[i] = first_step(float(x.reshape(-1)[i]), usual)
    jitter = claim.jitter.reshape(-1).copy()
    round_off = RoundOff(point, _differences_at(point, claim.name, steps))
    with np.errstate(all="ignore"):
        for i, line in lines.items():
            found.numeric[i], error[i], _, _ = quick(line, steps[i])
        known = np.where(looked, found.numeric, found.analytic)
        size = largest(known[np.isfinite(known)])
        floor = floor_of(scalar.eps, scalar.terms) + 1e-11 * size
        # In doubt: off by more than a tight tolerance, or than an error that four calls may have too short by luck.
        off = np.abs(found.analytic - found.numeric)
        tight = np.minimum(1e-8 * np.abs(found.numeric), tolerance(error, jitter))
        in_doubt = ~(off <= tight + tolerance(0.0, claim.base, floor)) | jumps(jitter, size) | ~(error <= 1e-6 * size)
        doubtful, wrong = np.flatnonzero(in_doubt & looked), 0
        for i in map(int, doubtful[np.argsort(-np.nan_to_num(off[doubtful], nan=np.inf))]):
            first = Look(found.numeric[i], error[i], jitter[i], False)
            look = _look_closer(point, claim, i, lines[i], steps[i], first, size, floor, round_off)
            found.numeric[i], error[i], jitter[i], found.kinks[i] = look
            allowed = tolerance(look.error, claim.base + look.jitter, floor)
            wrong += not look.kink and not abs(found.analytic[i] - look.derivative) <= allowed
            if wrong >= ENOUGH:
                break
        # Not a bit has moved, or as good as none: what happens below the last bit of a 1 inside the function, as in
        # log(1 + 1e-20), is lost.
        unmoved = EPS * max(map(largest, scalar.dy), default=0.0)
        lost = np.where(np.abs(found.numeric) <= 16 * unmoved, SAFETY * unmoved / steps, 0.0)
        _judge(found, claim, looked, error, jitter, floor, lost)
        edges = _edges(lines, steps, found)
    for i, line in lines.items():
        found.doubt[i] = max(found.doubt[i] - SAFETY * line.last_bit / steps[i], 0.0)
    found.calls = round_off.calls + sum(line.calls for line in lines.values())
    if edges:
        found.notes.append(f"d{claim.name}: {edges} elements on the edge of the domain have no difference")
    return found.shaped(claim.gradient.shape)


def _looked(found: ArgumentReport, chosen: np.ndarray | None) -> np.ndarray:
    return np.ones(found.wrong.size, dtype=bool) if chosen is None else chosen.reshape(-1)


def _judge(
    found: ArgumentReport, claim: Claim, looked: np.ndarray, error: Any, jitter: np.ndarray, floor: float,
    lost: Any = 0.0,
) -> None:
    """Which of the elements that were looked at are further from the derivative than the tolerance."""
    found.doubt = tolerance(error, jitter, floor)
    found.resolution = tolerance(error, claim.base + jitter, floor) + lost
    found.wrong = looked & ~(np.abs(found.analytic - found.numeric) <= found.resolution) & ~found.kinks


def _look_closer(
    point: Point, claim: Claim, i: int, line: Line, step: float, first: Look, size: float, floor: float,
    round_off: RoundOff,
) -> Look:
    """A whole tableau for an element in doubt; and if it is still off, is it a corner, or round-off?"""
    x, claimed = point.exact[claim.name], float(claim.gradient.reshape(-1)[i])
    derivative = refined(line, step)
    finite = np.isfinite(derivative.value)
    value, error = (derivative.value, derivative.error) if finite else (first.derivative, first.error)
    jitter, kink = first.jitter, False
    # At a corner the backward itself jumps when x moves by a last bit: leave that jitter out of the question.
    agrees = abs(claimed - value) <= tolerance(error, claim.base, floor)
    jumping = jumps(jitter, size)
    corner = (jumping or not agrees) and is_kink(line, derivative, step)
    if corner and agrees:
        kink = True
    elif corner or (not agrees and (jumping or _tied(point.exact, x.reshape(-1)[i]))):
        kink = allowed_at_corner(point, claim.name, i, claimed, derivative)
    if corner or (jumping and agrees):
        jitter = 0.0
    elif jumping and not kink:
        jitter = round_off(claim, np.array([i]))[0]
    return Look(value, error, jitter, kink)


def _look_with_differences(
    point: Point, claim: Claim, found: ArgumentReport, some: np.ndarray, jumping: np.ndarray, jitter: np.ndarray,
    size: float, floor: float, round_off: RoundOff,
) -> Look | None:
    """Is what the complex step finds wrong round-off, after all; or a corner? None if differences contradict it."""
    derivative = found.numeric[some]
    off = np.abs(found.analytic[some] - derivative)
    small = np.flatnonzero((off <= ROUNDED * size) | jumping)
    scatter = round_off(claim, some[small])
    tiny = off[small] <= 1024 * EPS * point.scalar.terms
    scatter[tiny] = np.maximum(scatter[tiny], round_off(claim, some[small][tiny], FAR))
    excused = np.zeros(some.size, dtype=bool)
    excused[small] = off[small] <= tolerance(0.0, claim.base + scatter, floor)
    jitter = jitter.copy()
    jitter[excused] = scatter[excused[small]]

    again = np.zeros(some.size, dtype=bool)
    again[small] = jumps(scatter, size)
    for k in np.flatnonzero(~excused & ~again):
        again[k] = jumping[k] or not _smooth(point, claim, int(some[k]), found, floor)
    kinks = np.zeros(some.size, dtype=bool)
    if again.any():
        marked = np.zeros(found.wrong.size, dtype=bool)
        marked[some[again]] = True
        by_differences = check_elements(point, claim, marked)
        found.calls += by_differences.calls
        kinks = by_differences.kinks.reshape(-1)[some]
        agrees = np.abs(by_differences.numeric.reshape(-1)[some] - derivative) <= (
            by_differences.resolution.reshape(-1)[some] + floor)
        if (again & ~excused & ~kinks & ~agrees).any():
            return None
    return Look(derivative, 0.0, jitter, kinks)


def _smooth(point: Point, claim: Claim, i: int, found: ArgumentReport, floor: float) -> bool:
    """Whether four calls or a few more find no corner there, and the derivative that the complex step finds."""
    x = point.exact[claim.name]
    line, h = point.scalar.line(x, slice(i, i + 1), np.ones(1)), first_step(float(x.reshape(-1)[i]), rms(x))
    with np.errstate(all="ignore"):
        first = quick(line, h)
        near = abs(first.value - found.numeric[i]) <= tolerance(first.error, 0.0, floor)
        smooth = near and not is_kink(line, first, h)
    found.calls += line.calls
    return smooth


def _edges(lines: dict[int, Line], steps: np.ndarray, found: ArgumentReport) -> int:
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
            found.numeric[i], found.doubt[i] = found.analytic[i], np.inf
    return edges


def _tied(exact: Arrays, value: float) -> bool:
    """Whether another element of any array has the same value."""
    return sum(int(np.sum(x == value)) for x in exact.values() if isinstance(x, np.ndarray)) > 1


def _differences_at(point: Point, name: str, steps: np.ndarray) -> Callable[[Move], Derivative | None]:
    """Derivatives by differences at moved arrays."""

    def at(move: Move) -> Derivative | None:
        moved = in_float64(move.arrays)
        evaluate = point.problem.bind(moved)
        try:
            scalar = Scalar(evaluate, evaluate(), move.dy)
        except Exception:  # the move has left the domain
            return None

        def derivative(i: int) -> tuple[float, int]:
            line = scalar.line(moved[name], slice(i, i + 1), np.ones(1))
            return refined(line, steps[i]).value, line.calls

        return derivative

    return at


def _complex_steps_at(point: Point, name: str) -> Callable[[Move], Derivative | None]:
    """Derivatives by the complex step at moved arrays."""

    def at(move: Move) -> Derivative | None:
        try:
            step = ComplexStep(point.problem, in_float64(move.arrays), None, move.dy)
        except NoComplexStep:  # the move has left the domain
            return None
        return lambda i: (step.along(name, slice(i, i + 1), np.ones(1))[0], 1)

    return at


def confirmed(
    point: Point, names: list[str], step: ComplexStep, rng: np.random.Generator, moving: Mapping[str, np.ndarray]
) -> tuple[str, int]:
    """Why differences do not confirm the complex step in these arrays, "" if they do; and the calls that this took.

    `moving` marks the elements that move, for arrays in which not all do.
    """
    exact, scalar, calls, other = point.exact, point.scalar, 0, False
    for alike in (True, False):
        directions = {}
        for name in names:
            x = exact[name]
            size = np.full(x.shape, rms(x) or 1.0) if alike else sizes(x)
            v = size * rng.choice([-1.0, 1.0], size.shape) * rng.uniform(1.0, 1.5, size.shape)
            directions[name] = v * moving[name].reshape(v.shape) if name in moving else v
        try:
            derivative, terms = step.through(directions)
        except Exception as error:  # it takes complex arrays, but no step
            return f"{type(error).__name__}: {error}", calls
        line = scalar.through((exact[name] for name in names), directions.values())
        floor = floor_of(EPS, scalar.terms, terms)
        agree = resolved = False
        for first, levels in ATTEMPTS:
            with np.errstate(all="ignore"):
                found = refined(line, first, levels, measure=False)
            known = found.error <= RESOLVED * max(scalar.terms, terms)
            agree = known and abs(found.value - derivative) <= tolerance(found.error, 0.0, floor)
            resolved |= known
            if agree:
                break
        calls += line.calls
        if agree:
            return "", calls
        other |= resolved
    finds = "find another derivative along a random direction" if other else "resolve no direction"
    return f"differences {finds} of {' and '.join(names[:3])}", calls


class Search:
    """Pieces of one random direction: derivatives along them, and the analytic gradient along them."""

    def __init__(
        self, scalar: Scalar, x: np.ndarray, claim: Claim, rng: np.random.Generator, step: ComplexStep | None,
        smooth: np.ndarray,
    ) -> None:
        self.scalar, self.x, self.claim, self.complex_step = scalar, x, claim, step
        # Never near zero, and of many lengths, so that two errors do not cancel; corners stay where they are.
        self.v = rng.choice([-1.0, 1.0], x.size) * rng.uniform(1.0, 1.5, x.size) * smooth
        self.step = 0.25 * first_step(0.0, rms(x))
        self.rounding = np.where(smooth, claim.base + claim.jitter.reshape(-1), 0.0) ** 2
        self.calls = 0

    def derivative(self, low: int, high: int, unit: bool = False) -> tuple[float, float]:
        """Along the piece [low, high) of the direction, and how far it may be off."""
        where = slice(low, high)
        v = np.ones(high - low) if unit else self.v[where]
        if self.complex_step is not None:
            self.calls += 1
            value, terms = self.complex_step.along(self.claim.name, where, v)
            return value, 4 * EPS * max(self.scalar.terms, terms)
        line = self.scalar.line(self.x, where, v)
        with np.errstate(all="ignore"):
            found = refined(line, self.step, LEVELS, measure=False)
        self.calls += line.calls
        return found.value, found.error

    def disagreement(self, low: int, high: int) -> tuple[float, float]:
        """Gradient minus derivative along the piece, and what can be resolved."""
        claimed = self.claim.gradient.reshape(-1)[low:high]
        value, error = self.derivative(low, high)
        terms = claimed * self.v[low:high]
        rounding = float(np.sqrt(self.rounding[low:high].sum() * 2 + (EPS * np.linalg.norm(terms)) ** 2))
        floor = floor_of(self.scalar.eps, self.scalar.terms)
        return float(terms.sum()) - value, tolerance(error, rounding, floor)


def check_directions(
    point: Point, claim: Claim, rng: np.random.Generator, most_calls: int, step: ComplexStep | None = None
) -> ArgumentReport:
    """Test the whole array by directions, by complex steps if there are any, by differences if not.

    If that fails, name elements, in at most about `most_calls` calls. Some of the elements at which the
    gradient jumps when inputs move, as at corners, are looked at one by one.
    """
    x = point.exact[claim.name]
    corners = at_corners(x, claim)
    found = ArgumentReport.unseen(claim.name, claim.gradient)
    calls, resolution, failed = 0, 0.0, False
    for _ in range(DIRECTIONS + MORE):
        search = Search(point.scalar, x, claim, rng, step, ~corners)
        off, resolution = search.disagreement(0, x.size)
        failed = not abs(off) <= resolution
        if failed:
            _bisect(search, off, resolution, found, most_calls - calls)
        calls += search.calls
        if failed and found.wrong.any():  # a corner that the moves did not find?
            beside = check_elements(point, claim, found.wrong)
            calls += beside.calls
            met = found.wrong & beside.kinks.reshape(-1)
            found.kinks |= met
            found.wrong &= ~met
            corners = at_corners(x, claim, met | corners)
            failed = not met.any() or bool(found.wrong.any())
        if failed:
            break
    found.doubt[:] = resolution / x.size**0.5
    found.calls, found.witness = calls, "differences" if step is None else "complex step"
    report = found.shaped(claim.gradient.shape)
    if not failed:
        report.by_direction = abs(off) / max(float(np.linalg.norm(claim.gradient)), 1e-300)
        report.notes.append(
            f"d{claim.name}: {x.size} elements by {DIRECTIONS} random directions, {calls} calls; an "
            f"error of {resolution:.1e} in one element would show (typical size {rms(claim.gradient):.1e})"
        )
    elif not found.wrong.any():
        # The derivative disagrees with the gradient as a whole, but no single element could be named.
        report.notes.append(
            f"d{claim.name}: wrong along a random direction by {abs(off):.1e}, resolution {resolution:.1e}"
        )
        report.wrong.reshape(-1)[int(np.argmax(np.abs(claim.gradient)))] = True
    if corners.any():
        some = np.zeros(x.size, dtype=bool)
        some[np.flatnonzero(corners)[:CORNERS]] = True
        beside = check_elements(point, claim, some)
        looked = some.reshape(x.shape)
        for field in ("numeric", "resolution", "wrong", "kinks", "doubt"):
            setattr(report, field, np.where(looked, getattr(beside, field), getattr(report, field)))
        report.calls += beside.calls
    return report


def at_corners(x: np.ndarray, claim: Claim, known: np.ndarray | None = None) -> np.ndarray:
    """Where the gradient jumps when inputs move by a few last bits, and all other elements with the same values."""
    flat = x.reshape(-1)
    jumping = jumps(claim.jitter.reshape(-1), largest(claim.gradient))
    jumping = jumping if known is None else jumping | known
    found: np.ndarray = np.isin(flat, flat[jumping]) if jumping.any() else jumping
    return found


def _bisect(search: Search, off: float, resolution: float, found: ArgumentReport, most_calls: int) -> None:
    """Follow the piece with the largest disagreement down to single elements, several if there are several."""

    def look(i: int) -> None:
        found.numeric[i], error = search.derivative(i, i + 1, unit=True)
        rounding = search.claim.base + search.claim.jitter.reshape(-1)[i]
        found.resolution[i] = tolerance(error, rounding, floor_of(search.scalar.eps, search.scalar.terms))
        found.wrong[i] = not abs(found.analytic[i] - found.numeric[i]) <= found.resolution[i]

    queue = [(-abs(off), 0, search.x.size, off, resolution)]
    named = 0
    while queue and search.calls < most_calls and named < FOUND:
        _, low, high, off, resolution = heapq.heappop(queue)
        if high - low == 1:
            look(low)
            named += bool(found.wrong[low])
            continue
        middle = (low + high) // 2
        left, known_left = search.disagreement(low, middle)
        right, known_right = off - left, resolution + known_left  # along one direction, disagreements add
        if abs(right) > known_left and abs(right) <= known_right:
            right, known_right = search.disagreement(middle, high)
        for part in ((low, middle, left, known_left), (middle, high, right, known_right)):
            if not abs(part[2]) <= part[3]:
                heapq.heappush(queue, (-abs(part[2]), *part))
    if not queue and named < FOUND:
        return  # these few explain all of the disagreement
    rng = np.random.default_rng(0)
    for i in rng.choice(search.x.size, min(SAMPLE, search.x.size), replace=False):
        if np.isnan(found.numeric[i]):
            look(int(i))
