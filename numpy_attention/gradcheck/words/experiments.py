"""Experiments on a wrong backward: change one thing at a time, and see when it becomes right, or what it depends on.

    dy                 twice the dy must give twice the gradient; what comes of parts of it: see `paths`
    an argument        at the value where it has nothing to say: a mask that hides nothing, a gamma of ones, ids that
                       do not repeat. A backward that is right there only has left that argument out
    an option          the same without it
    sums and lengths   a gradient behind a softmax sums to zero, a rotation keeps lengths: which of these is broken?

Each has its sentence ready; the first that speaks is the diagnosis, so the most telling come first.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.gradcheck.numbers.differences import first_step
from numpy_attention.gradcheck.numbers.line import rms
from numpy_attention.gradcheck.words.evidence import Evidence
from numpy_attention.gradcheck.words.neutral import REPEATED, at_neutral_values
from numpy_attention.gradcheck.words.paths import deaf_to_outputs, deaf_to_places_of_dy, local, mixing

UNDONE = "a backward is the transpose of it (the matrix transposed, the sum from the other end, the angle turned back)"
SMALL = 1e-4  # an error below this share is below what the experiments see


def experiments(evidence: Evidence) -> Iterator[str]:
    """What each experiment has to say, the most telling first."""
    wrong = evidence.wrong
    names = [report.name for report in wrong]
    if all(report.error < SMALL for report in wrong):
        return
    with np.errstate(all="ignore"):
        yield from _with_other_cotangents(evidence, names)
        yield from _where_ids_repeat(evidence)
        yield from deaf_to_outputs(evidence, names)
        yield from at_neutral_values(evidence, names)
        yield from _jacobian_itself(evidence, names)
        if not any(report.wrong.sum() == 1 < report.wrong.size for report in wrong):
            yield from deaf_to_places_of_dy(evidence, names)
        yield from _without_options(evidence, names)
        if all(report.wrong.mean() > 0.5 for report in wrong):
            yield from mixing(evidence, names)
            yield from _sums_and_lengths(evidence)
            yield from local(evidence, names)


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
            again = problem.run({**evidence.exact, name: dy[0]})[0] if dy[0].size == grad.size else ()
            if again and again[0].shape == grad.shape and np.allclose(again[0], grad, rtol=1e-9, atol=1e-12):
                yield f"d{name} is the forward applied to dy: {UNDONE}"


def _jacobian_itself(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward gives J dy, where J^T dy belongs."""
    dy = evidence.scalar.dy
    for name in names if len(dy) == 1 else ():
        grad = evidence.gradients()[name]
        if grad is not None and grad.shape == dy[0].shape and np.any(grad) and _near(
                _forwards(evidence, name), grad, 1e-6 * float(np.abs(grad).max())):
            yield f"d{name} is the Jacobian itself applied to dy, not its transpose: {UNDONE}"


def _forwards(evidence: Evidence, name: str) -> np.ndarray:
    """The derivative of the output along dy: what a backward would give that forgot to transpose. Four calls."""
    x, dy = evidence.exact[name], evidence.scalar.dy[0]
    evaluate, before, h = evidence.problem.bind(evidence.exact), x.copy(), first_step(0.0, rms(x)) / 4
    slopes = []
    try:
        for step in (h, h / 2):
            np.add(before, step * dy, out=x)
            right = evaluate()[0]
            np.add(before, -step * dy, out=x)
            slopes.append((right - evaluate()[0]) / (2 * step))
    finally:
        x[...] = before
    return np.asarray((4 * slopes[1] - slopes[0]) / 3)


def _where_ids_repeat(evidence: Evidence) -> Iterator[str]:
    """Whether just those rows of a table are wrong that were looked up more than once, and hold one of their terms."""
    for name, value in evidence.exact.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(evidence.wrong) == 1:
            numbers, counts = np.unique(value, return_counts=True)
            wrong, claimed = evidence.wrong[0].wrong, evidence.wrong[0].analytic
            rows = set(np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))).tolist())
            if rows and rows == set(numbers[counts > 1].tolist()) and _one_term_each(evidence, value, claimed, rows):
                yield f"wrong just where a number in {name} repeats: {REPEATED.format(name=name)}"


def _one_term_each(evidence: Evidence, ids: np.ndarray, claimed: np.ndarray, rows: set[int]) -> bool:
    """Whether each of these rows is dy at one of its places; yes where dy has another form and it cannot be told."""
    dy = evidence.scalar.dy[0]
    if len(evidence.scalar.dy) > 1 or dy.shape != ids.shape + claimed.shape[1:]:
        return True
    return all(any(np.allclose(one, claimed[row]) for one in dy[ids == row]) for row in rows)


def _without_options(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is right without one of the options."""
    problem = evidence.problem
    for name, value in problem.options.items():
        rest = {key: other for key, other in problem.options.items() if key != name}
        try:
            fine = evidence.right_at(names, evidence.exact, problem.with_options(rest))
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
