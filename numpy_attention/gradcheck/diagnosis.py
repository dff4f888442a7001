"""The likely mistake, in words: what turns the true gradient into the one the backward gave?

Three ways to know. Relations: the wrong gradient is minus, twice, the transpose of the right one, or differs from it by
something that stands in the formula. Experiments: run the backward again with gamma all ones, with nothing masked,
with ids that do not repeat, and see when it becomes right. Places: only the last row is wrong, only the diagonal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from . import relations
from .differences import first_step, refined
from .elements import Scalar
from .problem import Arrays, Problem, is_float
from .report import ArgumentReport

REPEATED = ("repeated {name} are counted once; add them up (np.add.at, or sort and np.add.reduceat), "
            "d[ids] += dy keeps only the last")


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
    mistakes: dict[str, list[str]] = {}  # and whose they are
    for report in evidence.wrong:
        relation = relations.find(report, evidence.scalar, evidence.exact, evidence.problem.options)
        report.pattern = relation.pattern if relation else relations.place(report.wrong, np.isfinite(report.numeric))
        if relation:
            mistakes.setdefault(relation.mistake, []).append(report.symbol)
    sentences = [f"{', '.join(symbols)}: {mistake}" for mistake, symbols in mistakes.items()]
    if sum(map(len, mistakes.values())) < len(evidence.wrong):
        found = next(_experiments(evidence), "") or _of_a_layer(evidence)
        sentences = [found, *sentences] if found else sentences
    if not sentences:
        sentences = [relations.place_in_words(report) for report in evidence.wrong]
    return "; ".join(sentences[:2])


def _experiments(evidence: Evidence) -> Iterator[str]:
    """Change one thing at a time, and tell when the wrong backward becomes right."""
    problem, exact = evidence.problem, evidence.exact
    names = [report.name for report in evidence.wrong]
    with np.errstate(all="ignore"):
        yield from _with_other_cotangents(evidence, names)
        for name, value in exact.items():
            changed, words = _neutral(name, value, exact)
            if changed is not None and _right(evidence, names, {**exact, name: changed}):
                yield words
        yield from _where_ids_repeat(evidence)
        yield from _one_row_alone(evidence, names)
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


def _with_other_cotangents(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """A backward is linear in dy; and it is not the forward applied to dy."""
    problem, dy = evidence.problem, evidence.scalar.dy
    _, cache = problem.run(evidence.exact)
    once, twice = problem.pull_back(dy, cache), problem.pull_back(tuple(2 * one for one in dy), cache)
    for name in names:
        grad, double = once[name], twice[name]
        if grad is None or double is None or not np.any(grad):
            continue
        if np.allclose(double, grad, rtol=1e-12, atol=0):
            yield f"d{name} does not depend on dy at all: is the chain rule's last factor missing?"
        if np.allclose(double, 4 * grad, rtol=1e-9, atol=0):
            yield f"d{name} grows with the square of dy: is dy used twice?"
        if len(dy) == 1 and dy[0].shape == evidence.exact[name].shape:
            again, _ = problem.run({**evidence.exact, name: dy[0]})
            if again[0].shape == grad.shape and np.allclose(again[0], grad, rtol=1e-9, atol=1e-12):
                yield (f"d{name} is the forward applied to dy: a backward undoes it "
                       "(the transpose, the angle turned back)")


def _where_ids_repeat(evidence: Evidence) -> Iterator[str]:
    """Whether just those rows of a table are wrong that were looked up more than once."""
    for name, value in evidence.exact.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(evidence.wrong) == 1:
            numbers, counts = np.unique(value, return_counts=True)
            wrong = evidence.wrong[0].wrong
            rows = set(np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))).tolist())
            if rows and rows == set(numbers[counts > 1].tolist()):
                yield f"wrong just where a number in {name} repeats: {REPEATED.format(name=name)}"


def _one_row_alone(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient that should sum over the rows of dy looks at one of them only."""
    problem, dy = evidence.problem, evidence.scalar.dy
    _, cache = problem.run(evidence.exact)
    once = problem.pull_back(dy, cache)
    for i, one in enumerate(dy):
        for keep, word in ((slice(-1, None), "last"), (slice(0, 1), "first")):
            if one.ndim < 2 or one.shape[0] < 2:
                continue
            part = np.zeros_like(one)
            part[keep] = one[keep]
            alone = problem.pull_back((*dy[:i], part, *dy[i + 1:]), cache)
            for name in names:
                grad, other = once[name], alone[name]
                if grad is None or other is None or grad.shape[:1] == one.shape[:1] or not np.any(grad):
                    continue
                if np.array_equal(grad, other):
                    yield f"d{name} uses only the {word} row of dy: is the sum over the batch axis an assignment?"


def _of_a_layer(evidence: Evidence) -> str:
    """What it tells that of a layer these gradients are right and those are wrong."""
    parameters = evidence.problem.parameters
    wrong = {report.name for report in evidence.wrong}
    if not parameters or len(evidence.reports) < 2:
        return ""
    if not wrong & parameters:
        names = ", ".join(f"d{name}" for name in sorted(wrong))
        return (f"every parameter's gradient is right, only {names} is wrong: a path to the input is missing or added "
                "twice (the residual path? one of q, k and v?)")
    if len(wrong) == 1:
        return (f"all other gradients are right: the mistake stands where d{next(iter(wrong))} is put together "
                "(used twice, its two gradients must be added)")
    return ""


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
                    f"right when no number in {name} repeats: {REPEATED.format(name=name)}")
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


def explain_shape(got: tuple[int, ...], expected: tuple[int, ...],
                  others: Mapping[str, tuple[int, ...]] | None = None) -> str:
    """What a gradient of another shape than its argument tells; `others` are the shapes of the other arguments."""
    for other, shape in (others or {}).items():
        if shape == got:
            return f"this is the shape of {other}: are the gradients in argument order?"
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
