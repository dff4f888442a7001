"""Where a problem is checked: its arrays in float64, L beside them, and what the backward says close by.

How far an honest claim may be off: the round-off of a backward, and what only looks like it.

The jitter of a claim, its change when inputs move by a few last bits (`claims.py`), is its round-off as long as the
backward is smooth there. Two kinds of claims deceive it. One that is wrong at a single point, at zero or where two
inputs are equal, jumps when it is moved away, and the jump would excuse the error. And where a function is a stair, as
1 - p is when p is nearly 1, a few last bits move nothing, and a claim seems exact that is not.

So a claim in doubt is looked at again, beside the witness, at places near and not so near. There a right claim minus
the derivative scatters as the round-off of both. For a wrong one it is the same number everywhere, or zero everywhere
but here: next to no scatter.

A gradient in float32 or float16: right means, close to what the same backward says in float64.

Differences and complex steps judge the backward run in float64, to the last digits. What it says in its own dtype is
then held to that, element by element, and no difference is needed: one element of 100,000 stands out. The bar is the
round-off of the dtype, measured (`claims.py`) and, in an array of many elements, seen in most of them: an error bar
made for the worst of sums is not granted where nine elements of ten need a hundredth of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.gradcheck.claims import Claim, Move, moved_by
from numpy_attention.gradcheck.line import Outputs, Scalar, largest
from numpy_attention.gradcheck.problem import Gradients, Problem
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.trees import Arrays


@dataclass
class Point:
    """All that the judges share: the problem, the arrays that they move, L there, and the moves by last bits."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    moves: list[Move]


@dataclass
class Verdict:
    """What a judge finds about each element of one array, flattened; where none was asked for, NaN."""

    numeric: np.ndarray  # the derivative
    doubt: np.ndarray  # how far it may be off, with what the claim scatters
    bar: np.ndarray  # how far the claim may be off it
    wrong: np.ndarray
    kinks: np.ndarray

    @classmethod
    def nothing(cls, size: int) -> "Verdict":
        nan, no = np.full(size, np.nan), np.zeros(size, dtype=bool)
        return cls(nan, np.zeros(size), nan.copy(), no, no.copy())

    def report(self, claim: Claim, calls: int, witness: str = "differences") -> ArgumentReport:
        """The same in the shape of the argument."""
        numeric, bar, wrong, kinks, doubt = (
            one.reshape(claim.gradient.shape) for one in (self.numeric, self.bar, self.wrong, self.kinks, self.doubt)
        )
        return ArgumentReport(
            claim.name, claim.gradient, numeric, bar, wrong, kinks, calls, doubt=doubt, witness=witness
        )


SAFETY = 8.0  # how many error bars apart is wrong
JUMP = 1e-9  # round-off of a larger share of the gradient is looked at twice

FURTHER = (2**16, 2**16, 2**26, 2**26)  # last bits
FAR = (2**38, 2**38, 2**41, 2**41)  # for what is as small as round-off can be, and may stand on a long stair

Derivative = Callable[[int], float]  # of one element


def jumps(jitter: Any, size: float) -> Any:
    """Where the jitter is large beside the size of the gradient."""
    return jitter > JUMP * size


class RoundOff:
    """How much claim minus derivative scatters about these arrays; `beside` gives derivatives at moved ones."""

    def __init__(self, point: Point, beside: Callable[[Move], Derivative]) -> None:
        self.point, self.beside = point, beside
        self.known: dict[tuple[int, ...], list[tuple[Move, Derivative]]] = {}

    def __call__(self, claim: Claim, elements: np.ndarray, ulps: tuple[int, ...] = FURTHER) -> np.ndarray:
        """The spread for each of these elements, from the moves that moved it; infinite where that is unknown."""
        x, moves = self.point.exact[claim.name], self._moves(ulps)
        off = np.full((len(moves) + 1, elements.size), np.nan)
        for k, (move, derivative) in enumerate(moves):
            grad = move.grads.get(claim.name)
            if grad is None:
                continue
            moved = (move.arrays[claim.name] != x).reshape(-1)[elements]
            for n in np.flatnonzero(moved):
                off[k, n] = float(grad.reshape(-1)[elements[n]]) - derivative(int(elements[n]))
        spread: np.ndarray = np.fmax.reduce(off) - np.fmin.reduce(off)
        return np.where(np.isfinite(spread), spread, np.inf)

    def _moves(self, ulps: tuple[int, ...]) -> list[tuple[Move, Derivative]]:
        near = self.point.moves
        if ulps not in self.known and near:
            rng = np.random.default_rng(len(near[0].arrays))
            further = moved_by(ulps, self.point.problem, near[0].arrays, near[0].dy, rng)
            self.known[ulps] = [(move, self.beside(move)) for move in [*near, *further]]
        return self.known.get(ulps, [])


MANY = 64  # elements of an array that can tell what is usual


def in_double(problem: Problem, exact: Arrays, dy: Outputs, grads: Gradients) -> Gradients | None:
    """What the same backward says in float64; None if that is what it has said, or if it cannot be run there."""
    if all(np.array_equal(exact[name].dtype, problem.inputs[name].dtype) for name in problem.differentiable):
        return None
    try:
        again = problem.gradients(exact, dy)
    except (TypeError, ValueError):  # written for one dtype only
        return None
    fits = all(
        grad is None or ((one := np.asarray(again.get(name))).shape, one.dtype.kind) == (grad.shape, "f")
        for name, grad in grads.items()
    )
    return {name: None if grad is None else np.array(grad) for name, grad in again.items()} if fits else None


def hold_to_float64(report: ArgumentReport, low: Claim) -> None:
    """Judge the gradient in its own dtype too; the report then shows that one."""
    off = np.abs(low.gradient - report.analytic)
    base = low.base + low.lenient
    if off.size >= MANY:
        base = min(base, max(4 * float(np.quantile(off, 0.9)), low.eps * largest(low.gradient)))
    bar = SAFETY * (base + low.jitter)
    too_far = ~(off <= bar) & ~report.kinks
    only_here = too_far & ~report.wrong
    # Where no witness was asked about an element, float64 is the witness.
    report.numeric = np.where(only_here & np.isnan(report.numeric), report.analytic, report.numeric)
    report.analytic, report.resolution = low.gradient, report.resolution + bar
    report.wrong = report.wrong | too_far
    if only_here.any() and not (report.wrong & ~only_here).any():
        report.notes.append(f"d{report.name}: the same backward is right in float64")
