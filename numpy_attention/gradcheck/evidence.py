"""The input of the diagnosis: the results of a failed check, and three more measurements.

    gradients, disagreement    run the backward again with another dy
    moves                      does an output of the function really depend on an argument?
    forward                    the Jacobian J times a direction, by the function alone
    right_at, smooth           run function and backward at other arrays
"""

from dataclasses import dataclass

import numpy as np

from numpy_attention.gradcheck.complex_step import ComplexStep, NoComplexStep
from numpy_attention.gradcheck.line import Outputs, Scalar, first_step, quick, refined, rms, sizes
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

    def disagreement(
        self, name: str, direction: np.ndarray, dy: Outputs | None = None, arrays: Arrays | None = None,
        problem: Problem | None = None,
    ) -> tuple[float, float, float, float]:
        """The gradient minus the numerical derivative along a direction; this derivative, their size, and its error."""
        dy, problem = self.scalar.dy if dy is None else dy, problem or self.problem
        direction = direction * problem.kept(name)
        arrays = self.exact if arrays is None else in_float64(arrays)
        y, cache = problem.run(arrays)
        if [one.shape for one in y] != [one.shape for one in dy]:  # without an option, outputs can have other shapes
            dy = tuple(np.random.default_rng(self.report.seed).standard_normal(one.shape) for one in y)
        grad, x, scalar = problem.pull_back(dy, cache)[name], arrays[name], Scalar(problem.bind(arrays), y, dy)
        if grad is None or grad.shape != x.shape:
            return np.nan, np.nan, np.nan, np.nan
        line, step = scalar.line(x, slice(None), direction.reshape(-1)), first_step(0.0, rms(x)) / 4
        with np.errstate(all="ignore"):
            found, norm, analytic = quick(line, step), float(np.linalg.norm(grad)), float(np.sum(grad * direction))
            if found.error > max(1e-7 * norm, 0.1 * abs(analytic - found.value)):  # too large to tell
                found = refined(line, step, levels=8, measure=False)
        return analytic - found.value, found.value, norm + abs(found.value), found.error

    def forward(self, name: str, direction: np.ndarray, arrays: Arrays | None = None) -> np.ndarray:
        """The derivative J v of the first output along a direction v of an argument; four calls."""
        arrays = in_float64(self.exact if arrays is None else arrays)
        evaluate, x = self.problem.bind(arrays), arrays[name]
        before, h, slopes = x.copy(), first_step(0.0, rms(x)) / 4, list[np.ndarray]()
        for step in (h, h / 2):
            np.add(before, step * direction, out=x)
            right = evaluate()[0].copy()
            np.add(before, -step * direction, out=x)
            slopes.append((right - evaluate()[0]) / (2 * step))
        return np.asarray((4 * slopes[1] - slopes[0]) / 3)

    def smooth(self, name: str) -> bool:
        """Whether the error of a gradient changes smoothly when its argument moves."""
        x, dy = self.exact[name], self.scalar.dy
        v = np.random.default_rng(self.report.seed).standard_normal(x.shape)

        def error(step: float) -> float:
            arrays = in_float64({**self.exact, name: x + step * sizes(x) * np.sign(v)})
            y, cache = self.problem.run(arrays)
            try:
                along, _ = ComplexStep(self.problem, arrays, None, dy).along(name, slice(None), v.reshape(-1))
            except NoComplexStep:
                line = Scalar(self.problem.bind(arrays), y, dy).line(arrays[name], slice(None), v.reshape(-1))
                along = refined(line, first_step(0.0, rms(x)), measure=False).value
            grad = self.problem.pull_back(dy, cache)[name]
            return float(np.sum(v if grad is None else grad * v)) - along

        for step in (2.0**-10, 2.0**-14):  # the small step crosses no corner
            first, second = np.diff([error(k * step) for k in range(3)])
            if abs(second - first) <= 0.2 * abs(first):
                return True
        return False

    def right_at(self, names: list[str], arrays: Arrays, problem: Problem | None = None) -> bool:
        """Whether the gradients that were wrong are right along a random direction at other arrays.

        False if the derivative is zero at these arrays, since this proves nothing about the backward.
        """
        rng = np.random.default_rng(self.report.seed)
        for name in (*names, *names):
            v = rng.standard_normal(self.exact[name].shape)
            try:
                off, derivative, size, error = self.disagreement(name, v, None, arrays, problem)
            except (ValueError, IndexError, ArithmeticError, np.linalg.LinAlgError):
                return False
            close = abs(off) <= tolerance(error, 0.0, 1e-6 * size) and error <= 1e-5 * size
            if not (close and abs(derivative) > 1e-8 * (self.scalar.terms + size)):
                return False
        return True


def only(x: np.ndarray, axis: int, places: int | list[int]) -> np.ndarray:
    """x with zeros everywhere except at these places of an axis."""
    kept = np.zeros_like(x)
    index = (slice(None),) * axis + (places,)
    kept[index] = x[index]
    return kept
