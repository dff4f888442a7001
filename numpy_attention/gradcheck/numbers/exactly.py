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
from numpy_attention.gradcheck.numbers.line import EPS, Scalar, largest, rms
from numpy_attention.gradcheck.numbers.round_off import FAR, SAFETY, RoundOff, jumps
from numpy_attention.gradcheck.problems.problem import Arrays, Problem, in_float64
from numpy_attention.gradcheck.report import ArgumentReport

ATTEMPTS = ((2.0**-11, 6), (2.0**-11, 20), (2.0**-25, 20))  # first step and levels; smaller ones pass corners nearby
ROUNDED = 1e-2  # no round-off is a larger share of the gradient, unless the claim jumps
RESOLVED = 1e-5  # a difference whose error is a larger share of the terms than that confirms nothing


def check_exactly(
    problem: Problem, scalar: Scalar, exact: Arrays, claim: Claim, moves: list[Move], step: ComplexStep,
    chosen: np.ndarray | None = None,
) -> ArgumentReport | None:
    """Look at the elements that `chosen` marks; without it, at all. None where differences contradict the step."""
    x, before = exact[claim.name], step.calls
    looked = np.ones(x.size, dtype=bool) if chosen is None else chosen
    claimed, jitter = claim.gradient.reshape(-1), claim.jitter.reshape(-1).copy()
    derivative, terms = np.full(x.size, np.nan), np.zeros(x.size)
    for i in np.flatnonzero(looked):
        derivative[i], terms[i] = step.along(claim.name, slice(i, i + 1), np.ones(1))
    floor = 32 * EPS * max(scalar.terms, largest(terms))
    least = floor + SAFETY * claim.base
    size = max(largest(claimed), largest(derivative[looked]))
    off = np.abs(claimed - derivative)
    jitter[off <= least] = 0.0  # right to the last digit at this very point
    jumping = jumps(jitter, size)
    bar = least + SAFETY * np.where(jumping, 0.0, jitter)
    wrong, kinks = looked & ~(off <= bar), np.zeros(x.size, dtype=bool)
    beside, calls = ComplexStepBeside(problem, claim.name), 0
    round_off = RoundOff(problem, moves, beside)
    left = np.flatnonzero(wrong)
    left = left[np.argsort(-np.nan_to_num(off[left], nan=np.inf))]
    while left.size:  # a few at a time: where all of them are wrong, the others need no second look
        some, left = left[:ENOUGH], left[ENOUGH:]
        small = some[(off[some] <= ROUNDED * size) | jumping[some]]  # what is far off is no round-off
        jitter[small] = round_off(x, claim, small)
        tiny = small[off[small] <= 1024 * EPS * scalar.terms]
        jitter[tiny] = np.maximum(jitter[tiny], round_off(x, claim, tiny, FAR))
        wrong[small] = ~(off[small] <= least + SAFETY * jitter[small])
        bar[small] = np.where(wrong[small], bar[small], least + SAFETY * jitter[small])
        unclear = [i for i in some[wrong[some]] if jumping[i] or not _smooth(scalar, x, int(i), derivative[i], floor)]
        again = np.union1d(unclear, some[jumps(jitter[some], size)]).astype(int)
        if again.size:
            second = check_elements(problem, scalar, exact, claim, moves, _marked(x.size, again))
            kinks |= second.kinks.reshape(-1)
            calls += second.calls
            agrees = np.abs(second.numeric.reshape(-1) - derivative) <= second.resolution.reshape(-1) + floor
            if (wrong & ~kinks & ~agrees)[again].any():
                return None
        wrong &= ~kinks
        if wrong[some].all():
            break
    calls += step.calls - before + beside.calls
    doubt, shape = bar - SAFETY * claim.base, x.shape
    return ArgumentReport(
        claim.name, claim.gradient, derivative.reshape(shape), bar.reshape(shape), wrong.reshape(shape),
        kinks.reshape(shape), calls, doubt=doubt.reshape(shape), witness="complex step",
    )


def _smooth(scalar: Scalar, x: np.ndarray, i: int, derivative: float, floor: float) -> bool:
    """Whether four calls or a few more find no corner at an element, and the derivative that the complex step finds."""
    line = scalar.line(x, slice(i, i + 1), np.ones(1))
    h = first_step(float(x.reshape(-1)[i]), rms(x))
    with np.errstate(all="ignore"):
        found = quick(line, h)
        return abs(found.value - derivative) <= SAFETY * found.error + floor and not is_kink(line, found, h)


def _marked(size: int, places: np.ndarray) -> np.ndarray:
    marked = np.zeros(size, dtype=bool)
    marked[places] = True
    return marked


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
    scalar: Scalar, exact: Arrays, names: list[str], step: ComplexStep, rng: np.random.Generator,
    moving: Mapping[str, np.ndarray],
) -> tuple[str, int]:
    """Why differences do not confirm the complex step in these arrays, "" if they do; and the calls that this took.

    `moving` marks the elements that move, for arrays in which not all do.
    """
    calls, other = 0, False
    for alike in (True, False):
        directions = {}
        for name in names:
            size = np.abs(exact[name])
            usual = rms(exact[name]) or 1.0
            size = np.full_like(size, usual) if alike else np.where(size > 0, size, usual)
            v = size * rng.choice([-1.0, 1.0], size.shape) * rng.uniform(1.0, 1.5, size.shape)
            directions[name] = v * moving[name].reshape(v.shape) if name in moving else v
        try:
            derivative, terms = step.through(directions)
        except NoComplexStep as error:
            return str(error), calls
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
