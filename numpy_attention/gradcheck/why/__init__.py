"""Why is a gradient wrong? Find the likely mistake of a backward, in one sentence.

    relations      compare two arrays: what changes the right gradient g into the given gradient c?
                       c = a g        a factor: -1 is a sign, 2 a term added twice, n a sum in place of a mean
                       c = f(g)       the right gradient transposed, shifted, averaged, times an argument
                       c = g + ...    the same number in each row, a multiple of x: a path is missing
    paths          with which wrong derivative of one step of the forward is the whole derivative equal to c?
    experiments    run the backward again, with another dy, other arrays, other options: when is it right?

Each part gives the simplest sentence that explains all wrong elements, or nothing: a sentence that is not true costs
more time than no sentence. The diagnosis ends when it has used its calls of the function, or its seconds.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from numpy_attention.gradcheck.derivative import H, Scalar, complex_numbers, first_step, rms
from numpy_attention.gradcheck.problem import Arrays, Gradients, Outputs, Problem, in_float64, is_float, largest
from numpy_attention.gradcheck.report import ArgumentReport, Report
from numpy_attention.gradcheck.why import experiments, relations
from numpy_attention.gradcheck.why.paths import Trace, of_steps

CALLS = 1000  # the diagnosis may call the function so many times,
SECONDS = 15.0  # and may take so long

Experiment = Callable[["Evidence"], Iterator[str]]


class OutOfBudget(Exception):
    """The diagnosis has used its calls or its time."""


@dataclass
class Evidence:
    """A failed check, and what the diagnosis measures in addition."""

    problem: Problem
    exact: Arrays  # all arguments, in float64
    scalar: Scalar  # L = sum(dy y) at these arguments
    report: Report
    answers: ClassVar[bool] = True  # the backward can be called, also for another dy

    def __post_init__(self) -> None:
        self.most = self.problem.calls + CALLS
        self.deadline = time.monotonic() + SECONDS
        self.cache: Any = None
        self.explained: set[str] = set()  # arguments whose gradients have a relation to the right ones
        # The complex step was confirmed for every gradient, so one call gives a derivative to the last digit.
        self.analytic = all(one.reference == "complex step" for one in self.report.arguments.values())

    @property
    def arrays(self) -> Arrays:
        """The arguments that are arrays."""
        return {name: value for name, value in self.exact.items() if isinstance(value, np.ndarray)}

    @property
    def wrong(self) -> list[ArgumentReport]:
        """The arguments whose gradients are wrong."""
        return self.report.wrong

    @property
    def names(self) -> list[str]:
        """The names of the arguments whose gradients are wrong."""
        return [report.name for report in self.wrong]

    @property
    def dy(self) -> str:
        """What dy is called in a sentence: with an argument y, dy is the gradient of this argument."""
        return "the upstream gradient" if "y" in self.exact else "dy"

    @cached_property
    def steps(self) -> set[str]:
        """The names of the steps of the forward; an empty set if they are not known."""
        trace = Trace()
        arrays = {name: trace.traced(x + 0j) if is_float(x) else x for name, x in self.arrays.items()}
        try:
            with complex_numbers(), np.errstate(all="ignore"):
                self.run({**self.exact, **arrays})
        except Exception:  # no calls are left, or the forward does not take complex arrays
            return set()
        return {step.site.name for step in trace.steps}

    def has(self, *names: str) -> bool:
        """Whether the forward has one of these steps, or its steps are not known."""
        return not self.steps or not self.steps.isdisjoint(names)

    @property
    def left(self) -> int:
        """How many calls are left."""
        return self.most - self.problem.calls

    def rng(self) -> np.random.Generator:
        """A generator that gives the same numbers each time."""
        return np.random.default_rng([self.report.seed, 23])

    def run(self, arrays: Arrays, problem: Problem | None = None) -> tuple[Outputs, Any]:
        """The outputs at these arrays, and the cache for the backward.

        Raises: OutOfBudget
        """
        self._spend()
        return (problem or self.problem).run(arrays)

    def _spend(self) -> None:
        if self.left <= 0 or time.monotonic() > self.deadline:
            raise OutOfBudget

    def gradients(self, dy: Outputs | None = None) -> Gradients:
        """The gradients that the backward returns, for `dy` if it is given; the forward runs only once."""
        self._spend()
        self.cache = self.cache or self.run(self.exact)[1]
        return self.problem.pull_back(self.scalar.dy if dy is None else dy, self.cache)

    def change(self, name: str, v: np.ndarray, arrays: Arrays | None = None, problem: Problem | None = None) -> Outputs:
        """J v: the change of each output when an argument moves along v; by a complex step, or by differences."""
        arrays = in_float64(self.exact if arrays is None else arrays)
        if self.analytic:
            complex_arrays = {one: x.astype(complex) if is_float(x) else x for one, x in arrays.items()}
            complex_arrays[name] += 1j * H * v
            with complex_numbers():
                return tuple(y.imag / H for y in self.run(complex_arrays, problem)[0])
        x = arrays[name]
        h = first_step(0.0, rms(x)) / 4
        left, near_left, near_right, right = (
            self.run({**arrays, name: x + t * v}, problem)[0] for t in (-h, -h / 2, h / 2, h)
        )
        return tuple((8 * (c - b) - (d - a)) / (6 * h) for a, b, c, d in zip(left, near_left, near_right, right))

    def slack(self, v: Arrays) -> float:
        """The round-off of the gradients' sum along a direction, if it is more than that of float64."""
        return 0.0

    def answer(self, problem: Problem, dy: Outputs, cache: Any) -> Gradients:
        """The gradients of another call."""
        return problem.pull_back(dy, cache)

    def experiments(self) -> list[Experiment]:
        """The experiments that can tell something about these gradients, the most specific first."""
        fit = [of_steps, *experiments.SPECIFIC]
        if not any(report.wrong.sum() == 1 < report.wrong.size for report in self.wrong):
            fit += [experiments.ignored_places_of_dy, experiments.other_dy]
        everywhere = all(report.wrong.mean() > 0.5 for report in self.wrong)
        return [*fit, *(experiments.GENERAL if everywhere else [experiments.of_a_layers_input])]

    def depends(self, name: str, part: Outputs) -> bool:
        """Whether an argument has an effect on outputs where `part` of dy is not zero."""
        x = self.exact[name]
        changes = self.change(name, self.rng().standard_normal(x.shape) * (rms(x) or 1.0))
        return any(largest(dy * y) > 1e-9 * self.scalar.terms for dy, y in zip(part, changes))

    def right_at(self, arrays: Arrays, names: list[str] | None = None, problem: Problem | None = None) -> bool:
        """Whether the gradients that were wrong are right along two random directions, at other arrays or options.

        False if a derivative is zero there, since this proves nothing, or if the function raises an error.
        """
        try:
            return all(self._agree(2 * (names or self.names), in_float64(arrays), problem or self.problem))
        except OutOfBudget:
            raise
        except Exception:
            return False

    def _agree(self, names: list[str], arrays: Arrays, problem: Problem) -> Iterator[bool]:
        rng, dy = self.rng(), self.scalar.dy
        y, cache = self.run(arrays, problem)
        if [one.shape for one in y] != [one.shape for one in dy]:  # without an option, outputs can have other shapes
            dy = tuple(rng.standard_normal(one.shape) for one in y)
        grads = self.answer(problem, dy, cache)
        for name in names:
            v = rng.standard_normal(arrays[name].shape) * problem.kept(name)
            yield self._is_derivative(name, grads, v, dy, self.change(name, v, arrays, problem))

    def right_for(self, dy: Outputs) -> bool:
        """Whether the wrong gradients, as they are, are right for another dy."""
        grads = self.gradients()
        return all(self._is_derivative(name, grads, v, dy, change) for name, v, change in self.probes)

    @cached_property
    def probes(self) -> list[tuple[str, np.ndarray, Outputs]]:
        """Two random directions for each wrong gradient, and the change of the outputs along them."""
        rng = self.rng()
        v = [(name, rng.standard_normal(self.exact[name].shape) * self.problem.kept(name)) for name in 2 * self.names]
        return [(name, one, self.change(name, one)) for name, one in v]

    def _is_derivative(self, name: str, grads: Gradients, v: np.ndarray, dy: Outputs, change: Outputs) -> bool:
        terms, derivative = np.asarray(grads[name]) * v, sum(float(np.sum(a * b)) for a, b in zip(dy, change))
        size = float(np.abs(terms).sum()) + abs(derivative)
        close = 1e-6 * size + self.slack({name: v})
        return abs(terms.sum() - derivative) <= close and abs(derivative) > 1e-8 * (self.scalar.terms + size)


@np.errstate(all="ignore")
def diagnose(evidence: Evidence) -> str:
    """Set the pattern of each wrong argument, the place of its wrong elements, and return the likely mistake."""
    wrong = evidence.wrong
    for report in wrong:
        report.pattern = relations.place(report.wrong, np.isfinite(report.numeric))
    if ties := [report.tie for report in wrong if report.tie]:
        return "; ".join(ties[:2])
    if all(report.corner for report in wrong):
        return "; ".join(report.corner for report in wrong[:2])
    points = [relations.at_one_value(report, evidence.arrays) for report in wrong]
    if all(points):
        return f"wrong only where {' and '.join(dict.fromkeys(points))}: does the backward treat this case separately?"
    for one, other in itertools.combinations(wrong, 2):
        if other.fits(one.analytic) and one.fits(other.analytic) and not one.fits(-one.analytic):
            return f"{one.symbol} and {other.symbol} are exchanged: each holds the other's gradient"
    # First: a backward that ignores an output looks as if it lacks a term.
    if ignored := _first(evidence, [experiments.ignored_outputs]):
        return ignored
    mistakes: dict[str, list[str]] = {}  # each mistake, and the gradients that have it
    for report in wrong:
        if mistake := relations.relation(report, evidence):
            mistakes.setdefault(mistake, []).append(report.symbol)
            evidence.explained.add(report.name)
    sentences = [f"{', '.join(symbols)}: {mistake}" for mistake, symbols in mistakes.items()]
    if sum(map(len, mistakes.values())) < len(wrong) and (found := _first(evidence, evidence.experiments())):
        sentences = [found, *sentences]
    return "; ".join((sentences or [relations.place_in_words(report) for report in wrong])[:2])


def _first(evidence: Evidence, some: list[Experiment]) -> str:
    """The sentence of the first experiment that finds something; "" if none does before the budget ends."""
    for experiment in some:
        try:
            if found := next(experiment(evidence), ""):
                return found
        except OutOfBudget:
            break
        except Exception:  # a function may raise any error at other arrays
            continue
    return ""
