"""Which step of the forward has a wrong derivative in the backward?

The chain rule multiplies the derivatives of the steps along a path, and adds the paths. So many mistakes are a missing
path, or a wrong derivative of one step. Each step of the forward gets wrong derivatives in turn (`steps`). If the
derivative of the function is then the analytic gradient, for random directions and other dy, this step is the mistake:

    a factor          0, -1, 2: the path is missing, has the wrong sign, is added twice
    another operand   a * b without b, with b transposed or reversed, with another array
    another slope     of a neighbour: y (1 - y) in place of 1 - y^2
    fewer terms       only the last time in a loop, only the last of repeated indices
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from numpy_attention.gradcheck.complex_step import H, complex_numbers
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Outputs
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.simpler import DIAGONAL
from numpy_attention.gradcheck.steps import Rule, Site, Step, Trace, moving

SHARE = 5  # the forward runs at most so many times for each call of the check,
STEPS = 60_000  # and has at most so many steps in all runs
LARGE = 20_000  # elements of arguments and outputs: the steps of larger functions are not examined
FACTORS = {0.0: "is missing", -1.0: "has the wrong sign", 2.0: "is added twice", 0.5: "is halved"}
WITH_FACTORS = ("multiply", "divide", "matmul", "dot", "einsum", "solve")  # steps that are linear in an operand
LINEAR = ("add", "subtract", "negative", "take")
REPEATED = "the path through {operand} keeps only the last of several terms where an index repeats: use np.add.at"

Change = Callable[[np.ndarray], np.ndarray]
IN_PLACE_OF_OTHER: dict[str, Change] = {"square": np.square, "square root": np.sqrt, "inverse": np.reciprocal}
RATIOS: dict[str, Change] = {  # of a wrong slope and the right one: the steps before y belong to the function too
    "1 - y**2 (of a tanh) in place of y (1 - y)": lambda y: (1 + y) / y,
    "y (1 - y) (of a sigmoid) in place of 1 - y**2": lambda y: y / (1 + y),
    "1 - y in place of y": lambda y: (1 - y) / y, "without the division by y": lambda y: y,
    "without the factor 1 - y": lambda y: 1 / (1 - y), "without the factor y (1 - y)": lambda y: 1 / (y * (1 - y)),
}


def of_steps(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """The step of the forward that has a wrong derivative in the backward."""
    left = 0 if evidence.problem.complex else SHARE * evidence.report.calls
    if sum(one.size for one in (*evidence.arrays.values(), *evidence.scalar.y)) <= LARGE:
        for some in [names, *([name] for name in names if len(names) > 1)]:
            if left <= 0:
                return
            search = _Search(evidence, some, left)
            yield from itertools.islice(search.found(), 1)
            left = search.left


class _Search:
    """The search for a wrong derivative that explains the gradients of some arguments."""

    def __init__(self, evidence: Evidence, names: list[str], left: int) -> None:
        self.evidence, self.names, self.left = evidence, names, left
        rng = np.random.default_rng([evidence.report.seed, 23])
        self.trials: list[tuple[Arrays, Outputs, float, float, float]] = []  # v, dy, analytic, right, size
        traces = [Trace() for _ in range(4)]
        for k, trace in enumerate(traces):
            dy = evidence.scalar.dy if k < 2 else tuple(rng.standard_normal(one.shape) for one in evidence.scalar.dy)
            grads, kept = evidence.gradients(dy), evidence.problem.kept
            v = {name: rng.standard_normal(evidence.exact[name].shape) * kept(name) for name in names}
            terms = np.concatenate([np.ravel(np.asarray(grads[name]) * v[name]) for name in names])
            right = self.derivative(v, dy, trace)
            self.trials.append((v, dy, float(terms.sum()), right, float(np.abs(terms).sum()) + abs(right)))
        self.trace = traces[0]
        self.moving = [*moving(self.trace)][::-1]
        self.left = min(self.left, STEPS // max(1, len(self.trace.steps)))

    def derivative(self, v: Arrays, dy: Outputs, trace: Trace) -> float:
        """The derivative of sum(dy y) along v, with the rule of the trace."""
        self.left -= 1
        arrays = {
            name: trace.traced(x + 1j * H * v.get(name, 0.0)) if x.dtype.kind == "f" else x
            for name, x in self.evidence.arrays.items()
        }
        with complex_numbers(), np.errstate(all="ignore"):
            y = self.evidence.problem.run({**self.evidence.exact, **arrays})[0]
        return sum(float((one * part.imag).sum()) / H for one, part in zip(dy, y, strict=True))

    def explains(self, sites: Sequence[Site], operand: int, rule: Rule, factor: float | None = 0.0) -> float | None:
        """The share of the right rule with which a wrong one gives the analytic gradient; None if it never does.

        Without a given share, it comes from the first trial. A rule explains nothing if its arrays do not fit.
        """
        for v, dy, analytic, right, size in self.trials:
            if self.left <= 0:
                return None
            try:
                base = self.derivative(v, dy, Trace(sites, operand, rule))
            except Exception:  # the function may raise any error
                return None
            if factor is None:
                if not abs(right - base) > 1e-9 * size:
                    return None
                factor = (analytic - base) / (right - base)
                factor = next((one for one in FACTORS if abs(one - factor) < 1e-6), factor)
            if not abs(base + factor * (right - base) - analytic) <= 1e-6 * abs(right - analytic) + 1e-11 * size:
                return None
        return factor

    def found(self) -> Iterator[str]:
        """One sentence for each explanation, the simplest first."""
        if all(abs(analytic - right) <= 1e-7 * size for *_, analytic, right, size in self.trials):
            return
        later = []
        for site, operand, _ in self.moving:
            factor = self.explains([site], operand, _some(()), None)
            if factor is not None:
                words = FACTORS.get(factor, f"has the factor {factor:.6g}")
                said = self.sentence(site, operand, f"the path through {{operand}} {words}")
                if factor in FACTORS:
                    yield said
                later.append(said)
        for site, operand, visits in self.moving:
            for words, rule in itertools.chain(_fewer(visits), self.others(operand, visits), _slopes(operand, visits)):
                if self.explains([site], operand, rule) is not None:
                    yield self.sentence(site, operand, words)
        sites = [site for site, operand, _ in self.moving if site.name == "take" and operand == 0]
        for some in [*([one] for one in sites), sites]:
            if some and self.explains(some, 0, _last_of_repeated) is not None:
                yield self.sentence(some[0], 0, REPEATED)
        yield from later

    def sentence(self, site: Site, operand: int, words: str) -> str:
        code, found = site.quoted()
        operands = [f"`{one}`" for one in found] + ["the other operand"] * 9  # without source, no operand has a name
        if operand >= len(found):
            operands[operand] = "its operand"
        gradients = " and ".join(f"d{name}" for name in self.names)
        return f"{gradients}: in {code}, {words.format(operand=operands[operand], operands=operands)}"

    def others(self, operand: int, visits: list[Step]) -> Iterator[tuple[str, Rule]]:
        """Rules of a step with another operand in place of one of its operands."""
        for k, b in enumerate(visits[0].operands):
            if not isinstance(b, np.ndarray) or k == operand or visits[0].site.name not in WITH_FACTORS:
                continue
            other = f"{{operands[{k}]}}"
            if b.shape != np.shape(visits[0].operands[operand]):
                yield f"the path through {{operand}} has {DIAGONAL}", _diagonal(k)
            yield f"the factor {other} is left out", _changed(k, np.ones_like)
            for name, each in self.like(b, len(visits)):
                yield f"the backward uses {name} in place of {other}", _replaced(k, each)
            for words, change in IN_PLACE_OF_OTHER.items():
                yield f"the backward uses the {words} of {other}", _changed(k, change)
            for i in range(b.ndim):
                reversed_one = functools.partial(np.flip, axis=i)
                yield f"the backward uses {other} reversed along axis {i}", _changed(k, reversed_one)
            for i, j in itertools.combinations(range(b.ndim), 2):
                words = f"the gradient fits {other} transposed (axes {i} and {j}): is a transpose missing?"
                yield words, _changed(k, functools.partial(np.swapaxes, axis1=i, axis2=j))
            values = [np.real(one.operands[k]) for one in visits]
            for word, each in (("next", values[1:] + values[-1:]), ("previous", values[:1] + values[:-1])):
                yield f"the backward uses the {word} {other}: an index is shifted by one", _replaced(k, each)
        for name, each in self.like(visits[0].result, len(visits)) if len(visits[0].operands) == 1 else ():
            yield f"the derivative is taken at {name}", _at(each)

    def like(self, array: np.ndarray, visits: int) -> Iterator[tuple[str, list[np.ndarray]]]:
        """Other arrays of the same shape, with their names: arguments, and results of steps."""
        for name, value in self.evidence.arrays.items():
            if value.shape == np.shape(array) and value.dtype.kind == "f":
                yield name, [value]
        results: dict[Site, list[np.ndarray]] = {}
        for step in self.trace.steps:
            if np.shape(step.result) == np.shape(array):
                results.setdefault(step.site, []).append(np.real(step.result))
        for site, each in results.items():
            if len(each) in (1, visits):
                yield site.quoted()[0].replace("{", "{{").replace("}", "}}"), each  # for `sentence`, which fills gaps


def _fewer(visits: list[Step]) -> Iterator[tuple[str, Rule]]:
    """Rules of a step in a loop with fewer terms."""
    n = len(visits)
    for words, kept in (
        ("only the last time", [n - 1]), ("only the first time", [0]), ("not the first time", range(1, n)),
        ("not the last time", range(n - 1)),
    ) if n > 1 else ():
        yield (
            f"the path through {{operand}} counts {words} that this line runs: does an assignment replace a sum, or is "
            "a term missing?"
        ), _some(kept)


def _slopes(operand: int, visits: list[Step]) -> Iterator[tuple[str, Rule]]:
    """Rules with another slope, for a step that keeps the shape."""
    step = visits[0]
    if np.shape(step.operands[operand]) != np.shape(step.result):
        return
    yield "the derivative with respect to {operand} is left out", _unchanged
    for words, ratio in RATIOS.items() if step.site.name not in LINEAR else ():
        yield f"the derivative is wrong: {words}, where y is the result", _times(ratio)


def _unchanged(step: Step, operand: int) -> np.ndarray:
    return np.asarray(step.operands[operand].imag)


def _changed(k: int, change: Change) -> Rule:
    return lambda step, operand: step.change(operand, {k: change(step.operands[k].real)})


def _replaced(k: int, each: list[np.ndarray]) -> Rule:
    return lambda step, operand: step.change(operand, {k: each[step.visit % len(each)]})


def _diagonal(k: int) -> Rule:
    """The change of the operand is the change of operand k at the same place, not of a sum."""

    def rule(step: Step, operand: int) -> np.ndarray:
        values = [np.real(x) + 1j * np.imag(step.operands[k]) * (i == operand) for i, x in enumerate(step.operands)]
        return np.asarray(step.run(*values)).imag

    return rule


def _at(each: list[np.ndarray]) -> Rule:
    return lambda step, operand: np.imag(step.run(each[step.visit % len(each)] + 1j * step.operands[operand].imag))


def _times(ratio: Change) -> Rule:
    return lambda step, operand: step.change(operand) * ratio(step.result.real)


def _some(kept: Sequence[int]) -> Rule:
    return lambda step, operand: step.change(operand) * (step.visit in kept)


def _last_of_repeated(step: Step, operand: int) -> np.ndarray:
    x = step.operands[operand]
    places, last = step.run(np.arange(x.size).reshape(x.shape)), np.zeros(x.size, dtype=int)
    last[places.reshape(-1)] = np.arange(places.size)
    return step.change(operand) * (last[places] == np.arange(places.size).reshape(places.shape))
