"""Experiments on a wrong backward: change one thing at a time, and see when it becomes right, or what it depends on.

    dy                 twice the dy must give twice the gradient; what comes of parts of it: see `paths`
    an argument        at the value where it has nothing to say: a mask that hides nothing, a gamma of ones, ids that
                       do not repeat. A backward that is right there only has left that argument out
    an option          the same without it
    sums and lengths   a gradient behind a softmax sums to zero, a rotation keeps lengths: which of these is broken?

Each has its sentence ready; the first that speaks is the diagnosis, so the most telling come first.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.differences import along
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Scalar
from numpy_attention.gradcheck.paths import deaf_to_outputs, deaf_to_places_of_dy, mixing
from numpy_attention.gradcheck.problem import Arrays, Problem, in_float64, is_float

REPEATED = (
    "rows of repeated {name} get only one of their contributions: d[{name}] += dy keeps the last; add them up "
    "with np.add.at (a scatter-add), or sort and np.add.reduceat"
)


def experiments(evidence: Evidence) -> Iterator[str]:
    """What each experiment has to say, the most telling first."""
    wrong = evidence.wrong
    names = [report.name for report in wrong]
    with np.errstate(all="ignore"):
        yield from _with_other_cotangents(evidence, names)
        yield from _where_ids_repeat(evidence)
        yield from deaf_to_outputs(evidence, names)
        yield from _at_neutral_values(evidence, names)
        if not any(report.wrong.sum() == 1 < report.wrong.size for report in wrong):
            yield from deaf_to_places_of_dy(evidence, names)
        yield from _without_options(evidence, names)
        if all(report.wrong.mean() > 0.5 for report in wrong):
            yield from mixing(evidence, names)
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
                yield (
                    f"d{name} is the forward applied to dy: a backward undoes it "
                    "(the transpose, the angle turned back)"
                )


def _where_ids_repeat(evidence: Evidence) -> Iterator[str]:
    """Whether just those rows of a table are wrong that were looked up more than once."""
    for name, value in evidence.exact.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(evidence.wrong) == 1:
            numbers, counts = np.unique(value, return_counts=True)
            wrong = evidence.wrong[0].wrong
            rows = set(np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))).tolist())
            if rows and rows == set(numbers[counts > 1].tolist()):
                yield f"wrong just where a number in {name} repeats: {REPEATED.format(name=name)}"


def _at_neutral_values(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is right where one of the arguments has nothing to say."""
    for name, value in evidence.exact.items():
        changed, words = _neutral(name, value, evidence.exact, names)
        if changed is not None and _right(evidence, names, {**evidence.exact, name: changed}):
            yield words


def _neutral(name: str, value: Any, exact: Arrays, wrong: list[str]) -> tuple[np.ndarray | None, str]:
    """The value at which an argument has nothing to say, and what it means if the backward is right there only."""
    if not isinstance(value, np.ndarray) or not value.size:
        return None, ""
    if value.dtype == bool and not value.all():
        return np.ones_like(value), (
            f"right when {name} hides nothing: the gradient leaks through what {name} hides; "
            f"apply {name} in the backward too, or keep the masked weights in the cache"
        )
    if value.dtype.kind in "iu":
        tables = [exact[other].shape[0] for other in wrong if exact[other].ndim]
        if len(np.unique(value)) < value.size <= max(tables, default=0):
            return np.arange(value.size).reshape(value.shape), (
                f"right when no number in {name} repeats: {REPEATED.format(name=name)}")
        return None, ""
    if is_float(value) and value.ndim == 1 and not np.all(value == 1):
        return np.ones_like(value), (
            f"right when {name} is all ones: {name} is missing from the gradient, "
            "or comes in at the wrong place"
        )
    return None, ""


def _without_options(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is right without one of the options."""
    problem = evidence.problem
    for name, value in problem.options.items():
        rest = {key: other for key, other in problem.options.items() if key != name}
        try:
            fine = _right(evidence, names, evidence.exact, problem.with_options(rest))
        except (TypeError, ValueError):  # an option that must be given
            continue
        if fine:
            yield _without(name, value)


def _without(name: str, value: Any) -> str:
    """What it means that a backward is right without an option."""
    if name in ("dropout", "rate"):
        return (
            "right without dropout: where the forward went on with what dropout left, zeroed and rescaled, the "
            "backward must use just that, not what was there before"
        )
    if name == "block_size":
        return f"right in one block: with {name}={value} a block overwrites what it should add to, or is left out"
    return f"right without the option {name}: does the backward forget {name}={value!r}?"


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
                        yield (
                            f"{report.symbol} sums to zero along axis {axis}, as behind a norm or a softmax, where "
                            "it must have the sums of dy: is dy left out, the straight path of a residual?"
                        )
                    yield (
                        f"{report.symbol} must have the sums of dy along axis {axis}, and has not: the weights that "
                        "the backward uses do not sum to one (made again without their maximum or sum?)"
                    )
            if _near(total, 0 * total, n * slack) and not _near(claims, total, 100 * n * slack):
                yield (
                    f"{report.symbol} must sum to zero along axis {axis}, as behind every softmax, and does not: is "
                    "the `- sum(dy * w)` missing, or taken along another axis, or the softmax's backward left out?"
                )
            length, theirs = (np.sqrt((one * one).sum(axis)) for one in (right, claimed))
            if _near(length, theirs, slack):
                yield (
                    f"{report.symbol} has the right length along axis {axis} but another direction: a rotation by "
                    "other angles, or of other pairs of coordinates?"
                )


def _near(a: np.ndarray, b: np.ndarray, slack: float) -> bool:
    return bool(np.all(np.abs(a - b) <= slack))


def _right(evidence: Evidence, names: list[str], arrays: Mapping[str, Any], problem: Problem | None = None) -> bool:
    """Whether the gradients that were wrong agree with the differences along a random direction at other arrays."""
    problem = problem or evidence.problem
    arrays = in_float64(arrays)
    try:
        y, cache = problem.run(arrays)
        grads = problem.pull_back(evidence.scalar.dy, cache)
    except (ValueError, IndexError):
        return False
    scalar = Scalar(problem.bind(arrays), y, evidence.scalar.dy)
    rng = np.random.default_rng(evidence.report.seed)
    for name in names:
        grad, x = grads[name], arrays[name]
        if grad is None or grad.shape != x.shape or not np.all(np.isfinite(grad)):
            return False
        for _ in range(2):
            v = rng.standard_normal(x.size)
            found = along(scalar, x, v, levels=6)
            claimed = float(np.sum(np.asarray(grad).reshape(-1) * v))
            size = float(np.linalg.norm(grad)) + abs(found.value)
            if not abs(claimed - found.value) <= 1e-6 * size + 8 * found.error:
                return False
    return True
