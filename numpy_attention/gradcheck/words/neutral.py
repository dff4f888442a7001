"""Experiments at other values: where does the backward become right, and where not?

    a mask that hides nothing, ids that do not repeat      what the backward leaves out is nothing there
    a mask upside down                                     right there, if the backward takes it so
    an argument of ones                                    a factor that is left out is one there
    a matrix that is symmetric                             so is its transpose
    a kernel that reads the same in both directions        to reverse it does nothing

An experiment needs a control. At ones a missing factor does nothing, but neither does a square for a cube, and a branch
at zero is never seen: so the backward is also asked at other constants and at random positive values, where the factor
that is left out shows.
"""

from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.problems.problem import Arrays, is_float
from numpy_attention.gradcheck.words.evidence import Evidence

REPEATED = (
    "rows of repeated {name} get only one of their contributions: d[{name}] += dy keeps the last; add them up "
    "with np.add.at (a scatter-add), or sort and np.add.reduceat"
)


OTHER = 1.37  # a constant that stands in no formula
FEW = 8  # arguments; with more of them, as in a layer, only vectors are set to ones


def at_neutral_values(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is right where one of the arguments has nothing to say."""
    for name, value in evidence.exact.items():
        if not isinstance(value, np.ndarray) or not value.size:
            continue
        if is_float(value):
            continue
        if value.dtype == bool:
            yield from _of_masks(evidence, names, name, value)
        changed, words = _neutral(name, value, evidence.exact, names)
        if changed is not None and evidence.right_at(names, {**evidence.exact, name: changed}):
            yield words
    arrays = {name: value for name, value in evidence.exact.items() if is_float(value) and value.size > 1}
    few = len(arrays) <= FEW and any(report.wrong.sum() > 2 for report in evidence.wrong)
    for name, value in arrays.items() if few else ():
        yield from _of_symmetry(evidence, names, name, value)
    for name, value in arrays.items():
        if value.ndim == 1 or few:
            yield from _of_ones(evidence, names, name, value)


def _of_masks(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    """Whether a mask stands upside down in the backward, or hides there what it does not hide in the function."""
    try:
        other = evidence.problem.gradients({**evidence.exact, name: ~value}, evidence.scalar.dy)
    except (ValueError, IndexError, ArithmeticError):
        return
    if all(report.fits(other[report.name]) for report in evidence.wrong):
        yield f"right with ~{name} in the place of {name}: the backward takes {name} the other way round"
    zero = all(not np.any(report.analytic[report.wrong]) for report in evidence.wrong)
    if zero and evidence.right_at(names, {**evidence.exact, name: np.ones_like(value)}):
        zeros = f"the backward gives zero where {name} hides, and there it must not be zero"
        yield f"right when {name} hides nothing: {zeros}"


def _neutral(name: str, value: np.ndarray, exact: Arrays, wrong: list[str]) -> tuple[np.ndarray | None, str]:
    """A mask that hides nothing or ids that do not repeat, and what it means if the backward is right there only."""
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


def _of_ones(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    if np.all(value == 1) or not _tells(evidence, names, name, np.ones_like(value)):
        return
    positive = np.random.default_rng([evidence.report.seed, 17]).uniform(0.5, 2.0, value.shape)
    if evidence.right_at(names, {**evidence.exact, name: positive}):
        if np.any(value <= 0):
            yield f"right when {name} is positive, wrong when it is not: a branch at zero, or a sign of {name}?"
    elif not evidence.right_at(names, {**evidence.exact, name: np.full_like(value, OTHER)}):
        yield (
            f"right when {name} is all ones, and not when it is all {OTHER}: {name} is missing from the gradient, "
            "or stands there once too often"
        )
    elif value.ndim == 1:
        yield (
            f"right when {name} is the same everywhere, wrong when it is not: {name} comes in at the wrong place, "
            "before a sum or a mean where it belongs behind it"
        )


def _of_symmetry(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    if value.ndim >= 2 and value.shape[-1] == value.shape[-2] > 1:
        other = value.swapaxes(-1, -2)
        if not np.array_equal(other, value) and _tells(evidence, names, name, (value + other) / 2):
            yield f"right when {name} is symmetric, wrong when it is not: a transpose of {name} is missing, or too many"
    for axis, n in enumerate(value.shape):
        if n > 2 and _tells(evidence, names, name, (value + np.flip(value, axis)) / 2):
            yield (
                f"right when {name} reads the same in both directions along axis {axis}: must {name} be reversed "
                "there, or must it not?"
            )


def _tells(evidence: Evidence, names: list[str], name: str, changed: np.ndarray) -> bool:
    """Whether the backward is right at changed values, and wrong at the same ones in another order."""
    if not evidence.right_at(names, {**evidence.exact, name: changed}):
        return False
    value, rng = evidence.exact[name], np.random.default_rng([evidence.report.seed, 19])
    shuffled = rng.permutation(value.reshape(-1)).reshape(value.shape)
    return not evidence.right_at(names, {**evidence.exact, name: shuffled})
