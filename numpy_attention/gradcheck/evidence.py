"""What a failed check hands on to whoever looks for the mistake: what is known, and two ways to ask further.

The backward may be asked again, with another dy; and the differences, whether an output truly depends on an argument.
Where the two disagree, a path is missing in the backward, or one is there that the forward does not have.
"""

from dataclasses import dataclass

import numpy as np

from numpy_attention.gradcheck.differences import along
from numpy_attention.gradcheck.line import Outputs, Scalar
from numpy_attention.gradcheck.problem import Arrays, Gradients, Problem
from numpy_attention.gradcheck.report import ArgumentReport, Report


@dataclass
class Evidence:
    """All that a failed check knows: the problem, its arrays in float64, and the report so far."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    report: Report

    @property
    def wrong(self) -> list[ArgumentReport]:
        """The arguments whose gradients are wrong."""
        return self.report.wrong

    def gradients(self, dy: Outputs | None = None) -> Gradients:
        """What the backward says, to another dy perhaps."""
        return self.problem.gradients(self.exact, self.scalar.dy if dy is None else dy)

    def moves(self, name: str, dy: Outputs, direction: np.ndarray) -> bool:
        """Whether sum(dy * y) truly changes when an argument moves along a direction."""
        scalar = Scalar(self.problem.bind(self.exact), self.scalar.y, dy)
        found = along(scalar, self.exact[name], direction, levels=8)
        return abs(found.value) > 1e-6 + 100 * found.error
