"""What a failed check hands on to whoever looks for the mistake."""

from dataclasses import dataclass

import numpy as np

from numpy_attention.gradcheck.differences import Outputs, first_step, refined
from numpy_attention.gradcheck.elements import Scalar
from numpy_attention.gradcheck.problem import Arrays, Gradients, Problem
from numpy_attention.gradcheck.report import ArgumentReport


@dataclass
class Evidence:
    """All that a failed check knows: the problem, its arrays in float64, and what was found for each argument."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    reports: dict[str, ArgumentReport]
    seed: int

    @property
    def wrong(self) -> list[ArgumentReport]:
        """The arguments whose gradients are wrong."""
        return [report for report in self.reports.values() if report.wrong.any()]

    def gradients(self, dy: Outputs | None = None) -> Gradients:
        """What the backward says, to another dy perhaps."""
        _, cache = self.problem.run(self.exact)
        return self.problem.pull_back(self.scalar.dy if dy is None else dy, cache)

    def moves(self, name: str, dy: Outputs, direction: np.ndarray) -> bool:
        """Whether sum(dy * y) truly changes when an argument moves along a direction."""
        x = self.exact[name]
        line = Scalar(self.problem.bind(self.exact), self.scalar.y, dy).line(x, slice(None), direction.reshape(-1))
        found = refined(line, first_step(0.0, float(np.sqrt(np.mean(x * x)))), 8)
        return abs(found.value) > 1e-6 + 100 * found.error
