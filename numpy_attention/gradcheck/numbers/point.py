"""Where a problem is checked: its arrays in float64, L beside them, and what the backward says close by."""

from dataclasses import dataclass

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim, Move
from numpy_attention.gradcheck.numbers.line import Scalar
from numpy_attention.gradcheck.problems.problem import Arrays, Problem
from numpy_attention.gradcheck.report import ArgumentReport


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
