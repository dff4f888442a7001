"""The likely mistake, in words: what turns the true gradient into the one the backward gave?

Three ways to know. Relations: the wrong gradient is minus, twice, the transpose of the right one, or differs from it by
something that stands in the formula. Experiments: run the backward again with gamma all ones, with nothing masked,
with ids that do not repeat, and see when it becomes right. Places: only the last row is wrong, only the diagonal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import relations
from .differences import first_step, refined
from .elements import Scalar
from .problem import Arrays, Problem, is_float
from .report import ArgumentReport


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


def diagnose(evidence: Evidence) -> str:
    """Fill in the pattern of each wrong argument, and say what the likely mistake is."""
    sentences: list[str] = []
    for report in evidence.wrong:
        relation = relations.find(report, evidence.scalar, evidence.exact, evidence.problem.options)
        report.pattern = relation.pattern if relation else relations.place(report.wrong, np.isfinite(report.numeric))
        if relation:
            sentences.append(f"{report.symbol}: {relation.mistake}")
    if len(sentences) < len(evidence.wrong):
        sentences = [*_experiments(evidence), *sentences]
    if not sentences:
        sentences = [relations.place_in_words(report) for report in evidence.wrong]
    return "; ".join(dict.fromkeys(sentence for sentence in sentences[:3] if sentence))


def _experiments(evidence: Evidence) -> Iterator[str]:
    """Change one thing at a time, and tell when the wrong backward becomes right."""
    problem, exact = evidence.problem, evidence.exact
    names = [report.name for report in evidence.wrong]
    dy = evidence.scalar.dy

    with np.errstate(all="ignore"):
        _, cache = problem.run(exact)
        once, twice = problem.pull_back(dy, cache), problem.pull_back(tuple(2 * one for one in dy), cache)
        for name in names:
            grad, double = once[name], twice[name]
            if grad is None or double is None or not np.any(grad):
                continue
            if np.allclose(double, grad, rtol=1e-12, atol=0):
                yield f"d{name} does not depend on dy at all: is the chain rule's last factor missing?"
                return
            if np.allclose(double, 4 * grad, rtol=1e-9, atol=0):
                yield f"d{name} grows with the square of dy: is dy used twice?"
                return
        for i, one in enumerate(dy):
            if one.ndim > 1 and one.shape[0] > 1:
                for keep, word in ((slice(-1, None), "last"), (slice(0, 1), "first")):
                    part = np.zeros_like(one)
                    part[keep] = one[keep]
                    other = problem.pull_back((*dy[:i], part, *dy[i + 1:]), cache)
                    for name in names:
                        grad, alone = once[name], other[name]
                        # One row alone giving all is wrong only if the true gradient sums over the rows.
                        summed = grad is not None and (grad.ndim == 0 or grad.shape[0] != one.shape[0])
                        if grad is None or alone is None or not summed:
                            continue
                        if np.any(grad) and np.array_equal(grad, alone):
                            yield (f"d{name} uses only the {word} row of dy: is the sum over the batch axis "
                                   "an assignment?")
                            return
        for name, value in exact.items():
            changed, words = _neutral(name, value, exact)
            if changed is not None and _right(evidence, names, {**exact, name: changed}):
                yield words
                return
        for name in problem.options:
            rest = {key: value for key, value in problem.options.items() if key != name}
            if problem.with_options is None:
                break
            try:
                fine = _right(evidence, names, exact, problem.with_options(rest))
            except (TypeError, ValueError):  # an option that must be given
                continue
            if fine:
                yield f"right without the option {name}: does the backward forget {name}={problem.options[name]!r}?"
                return


def _neutral(name: str, value: object, exact: Arrays) -> tuple[np.ndarray | None, str]:
    """The value at which an argument has nothing to say, and what it means if the backward is right there only."""
    if not isinstance(value, np.ndarray) or not value.size:
        return None, ""
    if value.dtype == bool and not value.all():
        return np.ones_like(value), (f"right when {name} hides nothing: the gradient leaks through what {name} hides; "
                                     f"apply {name} in the backward too, or keep the masked weights in the cache")
    if value.dtype.kind in "iu":
        flat = value.reshape(-1)
        if len(np.unique(flat)) < flat.size:
            tables = [other.shape[0] for other in exact.values() if is_float(other) and other.ndim]
            if max(tables, default=0) >= flat.size:
                return np.arange(flat.size).reshape(value.shape), (
                    f"right when no number in {name} repeats: repeated {name} are counted once; add them up "
                    "(np.add.at, or sort and np.add.reduceat), d[ids] += dy keeps only the last")
            return None, ""
    if is_float(value) and value.ndim == 1 and not np.all(value == 1):
        return np.ones_like(value), (f"right when {name} is all ones: {name} is missing from the gradient, "
                                     "or comes in at the wrong place")
    return None, ""


def _right(evidence: Evidence, names: list[str], arrays: Arrays, problem: Problem | None = None) -> bool:
    """Whether the gradients that were wrong agree with the differences along a random direction at other arrays."""
    problem = problem or evidence.problem
    arrays = {name: np.array(value, order="C") if is_float(value) else value for name, value in arrays.items()}
    try:
        y, cache = problem.run(arrays)
        grads = problem.pull_back(evidence.scalar.dy, cache)
    except (ValueError, IndexError):
        return False
    scalar = Scalar(problem.bind(arrays), y, evidence.scalar.dy)
    rng = np.random.default_rng(evidence.seed)
    for name in names:
        grad, x = grads[name], arrays[name]
        if grad is None or grad.shape != x.shape or not np.all(np.isfinite(grad)):
            return False
        for _ in range(2):
            v = rng.standard_normal(x.size)
            line = scalar.line(x, slice(None), v)
            found = refined(line, first_step(0.0, float(np.sqrt(np.mean(x * x)))), 6)
            claimed = float(np.sum(np.asarray(grad).reshape(-1) * v))
            size = float(np.linalg.norm(grad)) + abs(found.value)
            if not abs(claimed - found.value) <= 1e-6 * size + 8 * found.error:
                return False
    return True


def explain_shape(got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """What a gradient of another shape than its argument tells."""
    extra = len(got) - len(expected)
    if extra > 0 and got[extra:] == expected:
        return f"the sum over the batch axes {tuple(range(extra))} is missing"
    if len(got) == len(expected) and sorted(got) == sorted(expected):
        return "transposed"
    if len(got) == len(expected) and all(a == b or b == 1 for a, b in zip(got, expected)):
        axes = tuple(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
        return f"the sum over axes {axes}, along which the argument was broadcast, is missing"
    if int(np.prod(got)) == int(np.prod(expected)):
        return "the right number of elements: a reshape is missing"
    if extra < 0:
        return "summed over too many axes, or not spread back over those that the forward summed"
    return "a gradient has the shape of its argument"
