"""Small arrays by differences: every element by its own, judged by its own error bar.

Four calls give a first derivative, good enough for nearly all elements. Those in doubt get a whole tableau, and those
still in doubt are looked at for a kink (`kinks.py`). An element is wrong when it is off by more than its bar:

    bar = 8 (error of the difference + round-off of the claim) + floor

The floor is the round-off that no difference can see through.
"""

from collections.abc import Callable

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim, Move
from numpy_attention.gradcheck.numbers.differences import first_step, is_kink, quick, refined
from numpy_attention.gradcheck.numbers.kinks import allowed_at_corner
from numpy_attention.gradcheck.numbers.line import EPS, Scalar, largest, rms
from numpy_attention.gradcheck.numbers.round_off import SAFETY, RoundOff, jumps
from numpy_attention.gradcheck.problems.problem import Problem, in_float64
from numpy_attention.gradcheck.problems.trees import Arrays
from numpy_attention.gradcheck.report import ArgumentReport

ENOUGH = 6  # so many elements that a tableau finds wrong: the others need none


def check_elements(
    problem: Problem, scalar: Scalar, exact: Arrays, claim: Claim, moves: list[Move], chosen: np.ndarray | None = None
) -> ArgumentReport:
    """Look at the elements that `chosen` marks; without it, at all. The others are NaN in the report."""
    x = exact[claim.name]
    claimed, jitter = claim.gradient.reshape(-1), claim.jitter.reshape(-1).copy()
    looked = np.ones(x.size, dtype=bool) if chosen is None else chosen
    numeric, error = np.full(x.size, np.nan), np.full(x.size, np.nan)
    kinks = np.zeros(x.size, dtype=bool)
    usual = rms(x)
    lines = {int(i): scalar.line(x, slice(i, i + 1), np.ones(1)) for i in np.flatnonzero(looked)}
    steps = np.ones(x.size)
    for i in lines:
        steps[i] = first_step(float(x.reshape(-1)[i]), usual)
    beside = DifferencesBeside(problem, claim.name, steps)
    round_off = RoundOff(problem, moves, beside)
    with np.errstate(all="ignore"):
        for i, line in lines.items():
            numeric[i], error[i], _, _ = quick(line, steps[i])

        def size() -> float:
            known = np.where(looked, numeric, claimed)
            return largest(known[np.isfinite(known)])

        floor = 32 * scalar.eps * scalar.terms
        least = floor + SAFETY * claim.base
        # In doubt: off by more than a tight tolerance, or than an error bar that four calls may have too short by luck.
        off = np.abs(claimed - numeric)
        tight = np.minimum(1e-8 * np.abs(numeric), SAFETY * (error + jitter))
        in_doubt = ~(off <= tight + least + 1e-11 * size()) | jumps(jitter, size()) | ~(error <= 1e-6 * size())
        doubtful, wrong_ones = np.flatnonzero(looked & in_doubt), 0
        for i in doubtful[np.argsort(-np.nan_to_num(off[doubtful], nan=np.inf))]:
            if wrong_ones >= ENOUGH:
                break
            derivative = refined(lines[i], steps[i])
            if np.isfinite(derivative.value):
                numeric[i], error[i] = derivative.value, derivative.error
            # At a kink the backward itself jumps when x is moved by an ulp: leave that jitter out of the question.
            bare = SAFETY * error[i] + least + 1e-11 * size()
            agrees, jumping = abs(claimed[i] - numeric[i]) <= bare, jumps(jitter[i], size())
            corner = (jumping or not agrees) and is_kink(lines[i], derivative, steps[i])
            if corner and agrees:
                kinks[i] = True
            elif corner or (not agrees and (jumping or _tied(exact, x.reshape(-1)[i]))):
                kinks[i] = allowed_at_corner(scalar, exact, claim.name, i, float(claimed[i]), derivative)
            if corner or (jumping and agrees):
                jitter[i] = 0.0
            elif jumping and not kinks[i]:
                jitter[i] = round_off(x, claim, np.array([i]))[0]
            wrong_ones += not kinks[i] and not abs(claimed[i] - numeric[i]) <= bare + SAFETY * jitter[i]
        doubt = SAFETY * (error + jitter) + floor + 1e-11 * size()
        # Not a bit has moved, or as good as none: what happens below the last bit of a 1 inside the function, as in
        # log(1 + 1e-20), is lost.
        unmoved = EPS * max(map(largest, scalar.dy), default=0.0)
        lost = SAFETY * unmoved / steps
        bar = doubt + SAFETY * claim.base + np.where(np.abs(numeric) <= 16 * unmoved, lost, 0.0)
        wrong = looked & ~(np.abs(claimed - numeric) <= bar) & ~kinks
        edge = wrong & ~np.isfinite(numeric)
        for i in map(int, np.flatnonzero(edge)):  # is there a side to it?
            tiny = steps[i] * 2.0**-30
            nowhere = not (np.isfinite(lines[i](tiny)) or np.isfinite(lines[i](-tiny)))
            numeric[i], doubt[i] = (claimed[i], np.inf) if nowhere else (np.nan, 0.0)
    for i, line in lines.items():
        doubt[i] = max(doubt[i] - SAFETY * line.last_bit / steps[i], 0.0)
    report = ArgumentReport(
        claim.name, claim.gradient, numeric.reshape(x.shape), bar.reshape(x.shape), (wrong & ~edge).reshape(x.shape),
        kinks.reshape(x.shape), beside.calls + sum(line.calls for line in lines.values()), doubt=doubt.reshape(x.shape),
    )
    edge &= ~np.isfinite(numeric)
    if edge.any():
        report.notes.append(f"d{claim.name}: {int(edge.sum())} elements on the edge of the domain have no difference")
    return report


def _tied(exact: Arrays, value: float) -> bool:
    """Whether another element of any array has the same value."""
    return sum(int(np.sum(x == value)) for x in exact.values() if isinstance(x, np.ndarray)) > 1


class DifferencesBeside:
    """Derivatives by differences at moved arrays."""

    def __init__(self, problem: Problem, name: str, steps: np.ndarray) -> None:
        self.problem, self.name, self.steps = problem, name, steps
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
