"""Experiments on a wrong backward: change one thing at a time, and see when it becomes right, or what it depends on."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.differences import first_step, refined
from numpy_attention.gradcheck.elements import Scalar
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.problem import Arrays, Problem, is_float

REPEATED = ("rows of repeated {name} get only one of their contributions: d[{name}] += dy keeps the last; add them up "
            "with np.add.at (a scatter-add), or sort and np.add.reduceat")
MANY = 16  # axes longer than this are not taken apart place by place


def experiments(evidence: Evidence) -> Iterator[str]:
    """What each experiment has to say, the most telling first."""
    problem, exact = evidence.problem, evidence.exact
    names = [report.name for report in evidence.wrong]
    with np.errstate(all="ignore"):
        yield from _with_other_cotangents(evidence, names)
        yield from _where_ids_repeat(evidence)
        yield from _deaf_to_outputs(evidence, names)
        for name, value in exact.items():
            changed, words = _neutral(name, value, exact, names)
            if changed is not None and _right(evidence, names, {**exact, name: changed}):
                yield words
        if not any(report.wrong.sum() == 1 < report.wrong.size for report in evidence.wrong):
            yield from _deaf_to_places_of_dy(evidence, names)
        for name, value in problem.options.items():
            rest = {key: other for key, other in problem.options.items() if key != name}
            if problem.with_options is None:
                break
            try:
                fine = _right(evidence, names, exact, problem.with_options(rest))
            except (TypeError, ValueError):  # an option that must be given
                continue
            if fine:
                yield _without(name, value)
        if all(report.wrong.mean() > 0.5 for report in evidence.wrong):
            yield from _mixing(evidence, names)
            yield from _sums_and_lengths(evidence)


def _with_other_cotangents(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """A backward is linear in dy; and it is not the forward applied to dy."""
    problem, dy = evidence.problem, evidence.scalar.dy
    once, twice = evidence.gradients(), evidence.gradients(tuple(2 * one for one in dy))
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


def _deaf_to_outputs(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient takes nothing from one of several outputs that its argument was used for."""
    dy, rng = evidence.scalar.dy, np.random.default_rng(evidence.seed)
    for name in names if len(dy) > 1 else []:
        deaf = []
        for i in range(len(dy)):
            alone = tuple(one if i == j else np.zeros_like(one) for j, one in enumerate(dy))
            grad = evidence.gradients(alone)[name]
            silent = grad is not None and not np.any(grad)
            if silent and evidence.moves(name, alone, rng.standard_normal(evidence.exact[name].shape)):
                deaf.append(i)
        if deaf:
            outputs = ("outputs " if len(deaf) > 1 else "output ") + ", ".join(map(str, deaf))
            yield (f"d{name} takes nothing from dy of {outputs} (of {len(dy)}, counted from 0): {name} was used for "
                   "each of them, and the gradients of all uses add")


def _neutral(name: str, value: Any, exact: Arrays, wrong: list[str]) -> tuple[np.ndarray | None, str]:
    """The value at which an argument has nothing to say, and what it means if the backward is right there only."""
    if not isinstance(value, np.ndarray) or not value.size:
        return None, ""
    if value.dtype == bool and not value.all():
        return np.ones_like(value), (f"right when {name} hides nothing: the gradient leaks through what {name} hides; "
                                     f"apply {name} in the backward too, or keep the masked weights in the cache")
    if value.dtype.kind in "iu":
        tables = [exact[other].shape[0] for other in wrong if exact[other].ndim]
        if len(np.unique(value)) < value.size <= max(tables, default=0):
            return np.arange(value.size).reshape(value.shape), (
                f"right when no number in {name} repeats: {REPEATED.format(name=name)}")
        return None, ""
    if is_float(value) and value.ndim == 1 and not np.all(value == 1):
        return np.ones_like(value), (f"right when {name} is all ones: {name} is missing from the gradient, "
                                     "or comes in at the wrong place")
    return None, ""


def _without(name: str, value: Any) -> str:
    """What it means that a backward is right without an option."""
    if name in ("dropout", "rate"):
        return ("right without dropout: where the forward went on with what dropout left, zeroed and rescaled, the "
                "backward must use just that, not what was there before")
    if name == "block_size":
        return f"right in one block: with {name}={value} a block overwrites what it should add to, or is left out"
    return f"right without the option {name}: does the backward forget {name}={value!r}?"


def _deaf_to_places_of_dy(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient that must gather from all of dy leaves some places of an axis out."""
    dy, once = evidence.scalar.dy, evidence.gradients()
    rng = np.random.default_rng(evidence.seed)
    for i, one in enumerate(dy):
        for axis, n in enumerate(one.shape):
            if not 1 < n <= MANY:
                continue
            parts = [_only(one, axis, [place]) for place in range(n)]
            without = [evidence.gradients((*dy[:i], one - part, *dy[i + 1:])) for part in parts]
            for name in names:
                grad = once[name]
                deaf = [place for place in range(n) if _equal(grad, without[place][name])]
                if grad is None or not np.any(grad) or not 0 < len(deaf) < n:
                    continue
                part = _only(one, axis, deaf)
                nothing = tuple(np.zeros_like(other) for other in dy)
                if evidence.moves(name, (*nothing[:i], part, *nothing[i + 1:]), rng.standard_normal(grad.shape)):
                    yield _left_out(name, axis, deaf, n, bool(evidence.reports[name].wrong.all()))


def _left_out(name: str, axis: int, deaf: list[int], n: int, whole: bool) -> str:
    heard = [place for place in range(n) if place not in deaf]
    if axis == 0 and heard in ([0], [n - 1]):
        word = "first" if heard == [0] else "last"
        return f"d{name} uses only the {word} row of dy: is the sum over the batch axis an assignment?"
    places = ("places " if len(deaf) > 1 else "place ") + ", ".join(map(str, deaf))
    nothing = f"d{name} takes nothing from {places} along axis {axis} of dy"
    if whole:
        return f"{nothing}: must it be summed over that axis, or over each group of it?"
    return f"{nothing}: if several belong to one row, is only the last kept, as d[ids] += dy does (np.add.at adds)?"


def _mixing(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether forward and backward agree on which places along an axis have to do with each other."""
    rng = np.random.default_rng(evidence.seed)
    for i, one in enumerate(evidence.scalar.dy):
        for name in names:
            shape = evidence.exact[name].shape
            for axis in range(min(len(shape), one.ndim)):
                if not shape[axis] == one.shape[axis] > 1:
                    continue
                nothing = tuple(np.zeros_like(other) for other in evidence.scalar.dy)
                first = (*nothing[:i], _only(one, axis, [0]), *nothing[i + 1:])
                others = list(range(1, shape[axis]))
                grad = evidence.gradients(first)[name]
                if grad is None:
                    continue
                claimed = bool(np.any(_only(grad, axis, others)))
                true = evidence.moves(name, first, _only(rng.standard_normal(shape), axis, others))
                where = f"the places along axis {axis} of {name}"
                if claimed and not true:
                    yield f"the backward mixes {where}, which the forward keeps apart: a sum along the wrong axis?"
                if true and not claimed:
                    yield f"the forward mixes {where}, the backward keeps them apart: has it another axis, or no sum?"


def _sums_and_lengths(evidence: Evidence) -> Iterator[str]:
    """Whether sums or lengths tell: of a gradient behind a softmax, of weights that are not one, of a rotation."""
    for report in evidence.wrong:
        right, claimed = report.numeric, report.analytic
        if not np.isfinite(right).all() or not report.size:
            continue
        slack = 1e-6 * report.size
        for axis, n in enumerate(right.shape):
            if n < 2:
                continue
            total, claims = right.sum(axis), claimed.sum(axis)
            for dy in evidence.scalar.dy:
                like_dy = dy.ndim == right.ndim and dy.sum(axis).shape == total.shape
                if like_dy and _near(dy.sum(axis), total, slack) and not _near(claims, total, 100 * slack):
                    if dy.shape == right.shape and _near(claims, 0 * claims, n * slack):
                        yield (f"{report.symbol} sums to zero along axis {axis}, as behind a norm or a softmax, where "
                               "it must have the sums of dy: is dy left out, the straight path of a residual?")
                    yield (f"{report.symbol} must have the sums of dy along axis {axis}, and has not: the weights that "
                           "the backward uses do not sum to one (made again without their maximum or sum?)")
            if _near(total, 0 * total, n * slack) and not _near(claims, total, 100 * n * slack):
                yield (f"{report.symbol} must sum to zero along axis {axis}, as behind every softmax, and does not: is "
                       "the `- sum(dy * w)` missing, or taken along another axis, or the softmax's backward left out?")
            length, theirs = (np.sqrt((one * one).sum(axis)) for one in (right, claimed))
            if _near(length, theirs, slack):
                yield (f"{report.symbol} has the right length along axis {axis} but another direction: a rotation by "
                       "other angles, or of other pairs of coordinates?")


def _only(x: np.ndarray, axis: int, places: list[int]) -> np.ndarray:
    """x with all but some places of an axis set to zero."""
    kept = np.zeros_like(x)
    index = (slice(None),) * axis + (places,)
    kept[index] = x[index]
    return kept


def _near(a: np.ndarray, b: np.ndarray, slack: float) -> bool:
    return bool(np.all(np.abs(a - b) <= slack))


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


def _right(evidence: Evidence, names: list[str], arrays: Mapping[str, Any], problem: Problem | None = None) -> bool:
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
