"""Small arrays by differences: every element by its own, judged by its own error bar.

Four calls give a first derivative, good enough for nearly all elements. Those in doubt get a whole tableau, and those
still in doubt are looked at for a corner (`kinks.py`) and for round-off (`round_off.py`). An element is wrong when it
is off by more than its bar:

    bar = 8 (error of the difference + round-off of the claim) + floor

The floor is the round-off that no difference can see through.

Judged by complex steps, where these agree with differences.

A random direction through all arrays at once decides whether the complex step is to be believed: along it, its
derivative must be the one that differences find. An element in which it errs moves the sum by that error, and none is
left out: all elements move alike or, where no step suits them all, each in proportion to its size. Then one call an
element gives the derivative to the last digits, and the bar is the round-off of the claim alone:

    bar = 8 round-off of the claim + round-off of the sum

An element that is off is asked for by differences too: at a kink other claims than that are accepted (`kinks.py`). And
where differences contradict the complex step there, it is not believed after all.

Large arrays: random directions first, then bisection down to the element.

One derivative along a random direction v tests all elements at once: it must be sum(dx * v). An error e in one element
moves that sum by e |v_i|, however many elements there are, and no v_i is small. What can be resolved is the round-off
of the sum, so a large array is checked less sharply than a small one, in a few dozen calls instead of a million.

When the sum disagrees, the left half of the same direction tells which half is to blame, since disagreements along one
direction add: 20 halvings find one element among a million. Several wrong elements are followed at once, the piece
with the largest disagreement first, until there are enough to tell a pattern.
"""

import heapq
from collections.abc import Callable, Mapping

import numpy as np

from numpy_attention.gradcheck.claims import Claim, Move
from numpy_attention.gradcheck.complex_step import ComplexStep, NoComplexStep
from numpy_attention.gradcheck.differences import allowed_at_corner, first_step, is_kink, quick, refined
from numpy_attention.gradcheck.line import EPS, Line, Scalar, largest, rms, sizes
from numpy_attention.gradcheck.problem import Arrays, Problem, in_float64
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.tolerance import FAR, SAFETY, Point, RoundOff, Verdict, jumps

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


ATTEMPTS = ((2.0**-11, 6), (2.0**-11, 20), (2.0**-25, 20))  # first step and levels; smaller ones pass corners nearby
ROUNDED = 1e-2  # no round-off is a larger share of the gradient, unless the claim jumps
RESOLVED = 1e-5  # a difference whose error is a larger share of the terms than that confirms nothing


def check_exactly(
    point: Point, claim: Claim, step: ComplexStep, chosen: np.ndarray | None = None
) -> ArgumentReport | None:
    """Look at the elements that `chosen` marks; without it, at all. None where differences contradict the step."""
    x, scalar, before = point.exact[claim.name], point.scalar, step.calls
    looked = np.ones(x.size, dtype=bool) if chosen is None else chosen
    found, terms = Verdict.nothing(x.size), np.zeros(x.size)
    for i in np.flatnonzero(looked):
        found.numeric[i], terms[i] = step.along(claim.name, slice(i, i + 1), np.ones(1))
    floor = 32 * EPS * max(scalar.terms, largest(terms))
    least = floor + SAFETY * claim.base
    claimed, jitter = claim.gradient.reshape(-1), claim.jitter.reshape(-1)
    off = np.abs(claimed - found.numeric)
    size = max(largest(claimed), largest(found.numeric[looked]))
    # A claim that jumps is wrong at this very point, or right; what it does elsewhere is no round-off.
    jumping = jumps(jitter, size) & ~(off <= least)
    found.bar = least + SAFETY * np.where(jumping | (off <= least), 0.0, jitter)
    found.wrong = looked & ~(off <= found.bar)
    second = SecondLookExactly(point, claim, found, off, floor, size)
    left = np.flatnonzero(found.wrong)
    left = left[np.argsort(-np.nan_to_num(off[left], nan=np.inf))]
    while left.size:  # a few at a time: where all of them are wrong, the others need no second look
        some, left = left[:ENOUGH], left[ENOUGH:]
        if not second(some, jumping):
            return None
        if found.wrong[some].all():
            break
    found.doubt = found.bar - SAFETY * claim.base
    return found.report(claim, step.calls - before + second.calls + second.beside.calls, "complex step")


class SecondLookExactly:
    """At elements that are off: is it round-off, after all; or a corner; or is the complex step itself mistaken?"""

    def __init__(
        self, point: Point, claim: Claim, found: Verdict, off: np.ndarray, floor: float, size: float
    ) -> None:
        self.point, self.claim, self.found, self.off, self.floor, self.size = point, claim, found, off, floor, size
        self.beside = ComplexStepBeside(point.problem, claim.name)
        self.round_off = RoundOff(point, self.beside)
        self.calls = 0

    def __call__(self, some: np.ndarray, jumping: np.ndarray) -> bool:
        """Acquit those that can be excused; False where differences contradict the complex step."""
        found, claim = self.found, self.claim
        rounded = self._excuse_round_off(some[(self.off[some] <= ROUNDED * self.size) | jumping[some]])
        unclear = [i for i in some[found.wrong[some]] if jumping[i] or not self._smooth(int(i))]
        again = np.union1d(unclear, rounded).astype(int)
        if again.size:
            marked = np.zeros(found.wrong.size, dtype=bool)
            marked[again] = True
            by_differences = check_elements(self.point, claim, marked)
            self.calls += by_differences.calls
            found.kinks |= by_differences.kinks.reshape(-1)
            found.wrong &= ~found.kinks
            apart = np.abs(by_differences.numeric.reshape(-1) - found.numeric)
            agrees = apart <= by_differences.resolution.reshape(-1) + self.floor
            return not (found.wrong & ~agrees)[again].any()
        return True

    def _excuse_round_off(self, small: np.ndarray) -> np.ndarray:
        """Acquit what is off by no more than claim and derivative scatter; return those that scatter too much."""
        found = self.found
        jitter = self.round_off(self.claim, small)
        tiny = self.off[small] <= 1024 * EPS * self.point.scalar.terms
        jitter[tiny] = np.maximum(jitter[tiny], self.round_off(self.claim, small[tiny], FAR))
        bar = self.floor + SAFETY * (self.claim.base + jitter)
        excused = self.off[small] <= bar
        found.wrong[small[excused]] = False
        found.bar[small[excused]] = bar[excused]
        scattered: np.ndarray = small[jumps(jitter, self.size)]
        return scattered

    def _smooth(self, i: int) -> bool:
        """Whether four calls or a few more find no corner there, and the derivative that the complex step finds."""
        x = self.point.exact[self.claim.name]
        line = self.point.scalar.line(x, slice(i, i + 1), np.ones(1))
        h = first_step(float(x.reshape(-1)[i]), rms(x))
        with np.errstate(all="ignore"):
            first = quick(line, h)
            near = abs(first.value - self.found.numeric[i]) <= SAFETY * first.error + self.floor
            smooth = near and not is_kink(line, first, h)
        self.calls += line.calls
        return smooth


class ComplexStepBeside:
    """Derivatives by the complex step at moved arrays."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.name = problem, name
        self.calls = 0

    def __call__(self, move: Move) -> Callable[[int], float]:
        try:
            step = ComplexStep(self.problem, in_float64(move.arrays), None, move.dy)
        except NoComplexStep:  # a move by last bits has left the domain
            return lambda i: np.nan

        def derivative(i: int) -> float:
            self.calls += 1
            return step.along(self.name, slice(i, i + 1), np.ones(1))[0]

        return derivative


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
        floor = 32 * EPS * max(scalar.terms, terms)
        agree = resolved = False
        for first, levels in ATTEMPTS:
            with np.errstate(all="ignore"):
                found = refined(line, first, levels, measure=False)
            known = found.error <= RESOLVED * max(scalar.terms, terms)
            agree = known and abs(found.value - derivative) <= SAFETY * found.error + floor
            resolved |= known
            if agree:
                break
        calls += line.calls
        if agree:
            return "", calls
        other |= resolved
    finds = "find another derivative along a random direction" if other else "resolve no direction"
    return f"differences {finds} of {' and '.join(names[:3])}", calls


DIRECTIONS = 3
MORE = 3  # if corners were met along these
LEVELS = 5  # step sizes for one derivative
FOUND = 12  # so many wrong elements are enough to tell a pattern
CORNERS = 64  # so many elements at corners are looked at one by one
SAMPLE = 48  # elements looked at one by one once something is wrong


class Search:
    """The derivatives along pieces of one random direction, beside what the backward claims for them."""

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
        """Claim minus derivative along the piece, and what can be resolved."""
        claimed = self.claim.gradient.reshape(-1)[low:high]
        value, error = self.derivative(low, high)
        terms = claimed * self.v[low:high]
        rounding = float(np.sqrt(self.rounding[low:high].sum() * 2 + (EPS * np.linalg.norm(terms)) ** 2))
        floor = 32 * self.scalar.eps * self.scalar.terms
        return float(terms.sum()) - value, SAFETY * (error + rounding) + floor


def check_directions(
    point: Point, claim: Claim, rng: np.random.Generator, most_calls: int, step: ComplexStep | None = None
) -> ArgumentReport:
    """Test the whole array by directions, by complex steps if there are any, by differences if not.

    If that fails, name elements, in at most about `most_calls` calls. Some of the elements at which the claim jumps
    when it is moved, as at corners, are looked at one by one.
    """
    x = point.exact[claim.name]
    corners = at_corners(x, claim)
    found = Verdict.nothing(x.size)
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
    report = found.report(claim, calls, "differences" if step is None else "complex step")
    if not failed:
        report.by_direction = abs(off) / max(float(np.linalg.norm(claim.gradient)), 1e-300)
        report.notes.append(
            f"d{claim.name}: {x.size} elements by {DIRECTIONS} random directions, {calls} calls; an "
            f"error of {resolution:.1e} in one element would show (typical size {rms(claim.gradient):.1e})"
        )
    elif not found.wrong.any():
        # The differences disagree with the claim as a whole, but no single element could be blamed.
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
    """Where the claim jumps when inputs move by a few last bits, and wherever else such a number stands."""
    flat = x.reshape(-1)
    jumping = jumps(claim.jitter.reshape(-1), largest(claim.gradient))
    jumping = jumping if known is None else jumping | known
    found: np.ndarray = np.isin(flat, flat[jumping]) if jumping.any() else jumping
    return found


def _bisect(search: Search, off: float, resolution: float, found: Verdict, most_calls: int) -> None:
    """Follow the piece with the largest disagreement down to single elements, several if there are several."""
    claimed = search.claim.gradient.reshape(-1)

    def look(i: int) -> None:
        found.numeric[i], error = search.derivative(i, i + 1, unit=True)
        rounding = search.claim.base + search.claim.jitter.reshape(-1)[i]
        found.bar[i] = SAFETY * (error + rounding) + 32 * search.scalar.eps * search.scalar.terms
        found.wrong[i] = not abs(claimed[i] - found.numeric[i]) <= found.bar[i]

    queue = [(-abs(off), 0, search.x.size, off, resolution)]
    named = 0
    while queue and search.calls < most_calls and named < FOUND:
        _, low, high, off, resolution = heapq.heappop(queue)
        if high - low == 1:
            look(low)
            named += bool(found.wrong[low])
            continue
        middle = (low + high) // 2
        left, bar_left = search.disagreement(low, middle)
        right, bar_right = off - left, resolution + bar_left  # along one direction, disagreements add
        if abs(right) > bar_left and abs(right) <= bar_right:
            right, bar_right = search.disagreement(middle, high)
        for part in ((low, middle, left, bar_left), (middle, high, right, bar_right)):
            if not abs(part[2]) <= part[3]:
                heapq.heappush(queue, (-abs(part[2]), *part))
    if not queue and named < FOUND:
        return  # these few explain all of the disagreement
    rng = np.random.default_rng(0)
    for i in rng.choice(search.x.size, min(SAMPLE, search.x.size), replace=False):
        if np.isnan(found.numeric[i]):
            look(int(i))
