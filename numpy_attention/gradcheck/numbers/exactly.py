"""Judged by complex steps, where these agree with differences.

A random direction through all arrays at once decides whether the complex step is to be believed: along it, its
derivative must be the one that differences find. An element in which it errs moves the sum by that error, and none is
left out: all elements move alike or, where no step suits them all, each in proportion to its size. Then one call an
element gives the derivative to the last digits, and the bar is the round-off of the claim alone:

    bar = 8 round-off of the claim + round-off of the sum

An element that is off is asked for by differences too: at a kink other claims than that are accepted (`kinks.py`). And
where differences contradict the complex step there, it is not believed after all.
"""

from collections.abc import Callable, Mapping

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim, Move
from numpy_attention.gradcheck.numbers.complex_step import ComplexStep, NoComplexStep
from numpy_attention.gradcheck.numbers.differences import first_step, is_kink, quick, refined
from numpy_attention.gradcheck.numbers.elements import ENOUGH, check_elements
from numpy_attention.gradcheck.numbers.line import EPS, largest, rms, sizes
from numpy_attention.gradcheck.numbers.point import Point, Verdict
from numpy_attention.gradcheck.numbers.round_off import FAR, SAFETY, RoundOff, jumps
from numpy_attention.gradcheck.problems.problem import Problem, in_float64
from numpy_attention.gradcheck.report import ArgumentReport

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
    second = SecondLook(point, claim, found, off, floor, size)
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


class SecondLook:
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
