"""The input of the diagnosis: the results of a failed check, and three more measurements.

    gradients, disagreement    run the backward again with another dy
    moves                      does an output of the function really depend on an argument?
    right_at                   run function and backward at other arrays

Each measurement costs only a few calls. If backward and function disagree, the backward lacks a path that the forward
has, or has a path that the forward lacks.
"""

from dataclasses import dataclass

import numpy as np

from numpy_attention.gradcheck.line import Outputs, Scalar, first_step, quick, refined, rms
from numpy_attention.gradcheck.problem import Arrays, Gradients, Problem, in_float64
from numpy_attention.gradcheck.report import ArgumentReport, Report
from numpy_attention.gradcheck.tolerance import tolerance


@dataclass
class Evidence:
    """The problem, its arrays in float64, L at these arrays, and the report so far."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    report: Report

    @property
    def arrays(self) -> Arrays:
        """The arguments that are arrays."""
        return {name: value for name, value in self.exact.items() if isinstance(value, np.ndarray)}

    @property
    def wrong(self) -> list[ArgumentReport]:
        """The arguments whose gradients are wrong."""
        return self.report.wrong

    def gradients(self, dy: Outputs | None = None) -> Gradients:
        """The analytic gradients, for `dy` if it is given."""
        return self.problem.gradients(self.exact, self.scalar.dy if dy is None else dy)

    def moves(self, name: str, dy: Outputs, direction: np.ndarray) -> bool:
        """Whether sum(dy * y) really changes when an argument moves along a direction; needs two calls."""
        scalar = Scalar(self.problem.bind(self.exact), self.scalar.y, dy)
        x = self.exact[name]
        line, step = scalar.line(x, slice(None), direction.reshape(-1)), first_step(0.0, rms(x))
        with np.errstate(all="ignore"):
            return max(abs(line(step)), abs(line(-step))) > 1e-9 * step * scalar.terms + 200 * scalar.noise

    def disagreement(self, name: str, dy: Outputs, direction: np.ndarray) -> tuple[float, float, float]:
        """The gradient minus the numerical derivative along a direction, this derivative, their size; four calls."""
        grad, x = self.gradients(dy)[name], self.exact[name]
        scalar = Scalar(self.problem.bind(self.exact), self.scalar.y, dy)
        with np.errstate(all="ignore"):
            found = quick(scalar.line(x, slice(None), direction.reshape(-1)), first_step(0.0, rms(x)) / 4)
        if grad is None:
            return np.nan, found.value, np.nan
        analytic, size = float(np.sum(grad * direction)), float(np.linalg.norm(grad)) + abs(found.value)
        return analytic - found.value, found.value, size

    def right_at(self, names: list[str], arrays: Arrays, problem: Problem | None = None) -> bool:
        """Whether the gradients that were wrong are right along a random direction at other arrays.

        False if the derivative is zero at these arrays, since this proves nothing about the backward.
        """
        problem, arrays = problem or self.problem, in_float64(arrays)
        try:
            y, cache = problem.run(arrays)
            grads = problem.pull_back(self.scalar.dy, cache)
        except (ValueError, IndexError, ArithmeticError, np.linalg.LinAlgError):
            return False
        if [one.shape for one in y] != [one.shape for one in self.scalar.y]:
            return False
        scalar = Scalar(problem.bind(arrays), y, self.scalar.dy)
        rng = np.random.default_rng(self.report.seed)
        for name in names:
            grad, x = grads[name], arrays[name]
            if grad is None or grad.shape != x.shape or not np.all(np.isfinite(grad)):
                return False
            for _ in range(2):
                v = rng.standard_normal(x.size)
                analytic, size = float(np.sum(np.asarray(grad).reshape(-1) * v)), float(np.linalg.norm(grad))
                line, step = scalar.line(x, slice(None), v), first_step(0.0, rms(x)) / 4
                found = quick(line, step)
                if not abs(analytic - found.value) <= tolerance(found.error, 0.0, 1e-6 * (size + abs(found.value))):
                    return False
                if found.error > 1e-7 * size:
                    found = refined(line, step, levels=8, measure=False)
                size += abs(found.value)
                close = abs(analytic - found.value) <= tolerance(found.error, 0.0, 1e-6 * size)
                if not (close and found.error <= 1e-5 * size):
                    return False
                if abs(found.value) <= 1e-8 * (scalar.terms + size):
                    return False
        return True
