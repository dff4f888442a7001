"""Large arrays: random directions first, then bisection down to the element.

One derivative along a random direction v tests all elements at once: it must be sum(dx * v). An error e in one element
moves that sum by e |v_i|, however many elements there are, and no v_i is small. What can be resolved is the round-off
of the sum, so a large array is checked less sharply than a small one, in a few dozen calls instead of a million.

When the sum disagrees, the left half of the same direction tells which half is to blame, since disagreements along one
direction add: 20 halvings find one element among a million. Several wrong elements are followed at once, the piece
with the largest disagreement first, until there are enough to tell a pattern.
"""

import heapq

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim
from numpy_attention.gradcheck.numbers.complex_step import ComplexStep
from numpy_attention.gradcheck.numbers.differences import first_step, refined
from numpy_attention.gradcheck.numbers.elements import check_elements
from numpy_attention.gradcheck.numbers.line import EPS, Scalar, largest, rms
from numpy_attention.gradcheck.numbers.point import Point, Verdict
from numpy_attention.gradcheck.numbers.round_off import SAFETY, jumps
from numpy_attention.gradcheck.report import ArgumentReport

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
