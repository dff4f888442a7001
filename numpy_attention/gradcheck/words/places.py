"""Where the wrong elements lie, in a few words: the last row, the diagonal, the edges, places 3 to 5 along an axis."""

import numpy as np

from numpy_attention.gradcheck.report import ArgumentReport

MOST = 6  # places that are listed one by one


def place(wrong: np.ndarray, seen: np.ndarray) -> str:
    """Where the wrong elements lie, in a few words; nothing where there are none for it."""
    count = int(wrong.sum())
    if seen.sum() < wrong.size:
        return "" if count > 1 else "a single element"
    if count == wrong.size:
        return "every element"
    if count == 1:
        return "a single element"
    if wrong.ndim >= 2 and wrong.shape[-1] == wrong.shape[-2] > 1:
        triangle = _of_the_diagonal(wrong)
        if triangle:
            return triangle
    hits = [np.flatnonzero(wrong.any(axis=_others(wrong, axis))) for axis in range(wrong.ndim)]
    cut = [axis for axis, hit in enumerate(hits) if len(hit) < wrong.shape[axis]]
    box = np.zeros_like(wrong)
    box[np.ix_(*hits)] = True
    if cut and (count == box.sum() or count > max(7, 0.6 * box.sum())):  # some may be zero, and so right
        return "only " + " and ".join(
            f"{indices_in_words(hits[axis], wrong.shape[axis])} along axis {axis}" for axis in cut
        )
    fine = [np.flatnonzero(~wrong.all(axis=_others(wrong, axis))) for axis in range(wrong.ndim)]
    inner = np.zeros_like(wrong)
    inner[np.ix_(*fine)] = True
    within = [axis for axis, hit in enumerate(fine) if len(hit) < wrong.shape[axis]]
    if within and np.array_equal(inner, ~wrong) and all(_contiguous(fine[axis]) for axis in within):
        return "only the edges: all but " + " and ".join(
            f"{indices_in_words(fine[axis], wrong.shape[axis])} along axis {axis}" for axis in within
        )
    return ""


def _of_the_diagonal(wrong: np.ndarray) -> str:
    eye = np.broadcast_to(np.eye(wrong.shape[-1], dtype=bool), wrong.shape)
    if np.array_equal(wrong, eye):
        return "the diagonal"
    if np.array_equal(wrong, ~eye):
        return "all but the diagonal"
    for name, opposite in (("below", np.triu), ("above", np.tril)):
        if not np.any(opposite(wrong)) and wrong.sum() > 0.7 * (~opposite(np.ones_like(wrong))).sum():
            return f"only {name} the diagonal"
    return ""


def indices_in_words(indices: np.ndarray, n: int) -> str:
    """Some of n places along an axis: the last, places 2 to 4, every third place from 1."""
    if len(indices) == 1:
        index = int(indices[0])
        return "the last" if index == n - 1 else "the first" if index == 0 else f"number {index}"
    if len(indices) == 2 and indices[0] == 0 and indices[1] == n - 1:
        return "the first and the last"
    steps = np.diff(indices)
    if _contiguous(indices):
        return f"places {indices[0]} to {indices[-1]}"
    if len(indices) > 2 and np.all(steps == steps[0]) and indices[0] < steps[0] and indices[-1] + steps[0] >= n:
        return f"every {steps[0]}th place from {indices[0]}"
    return "places " + ", ".join(map(str, indices[:MOST])) + (" ..." if len(indices) > MOST else "")


def _contiguous(indices: np.ndarray) -> bool:
    return bool(np.all(np.diff(indices) == 1))


def _others(x: np.ndarray, axis: int) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if i != axis)


def place_in_words(report: ArgumentReport) -> str:
    """The mistake that a place suggests; of two places neither says more than itself."""
    pattern, symbol = report.pattern, report.symbol
    if pattern == "a single element":
        index = ", ".join(map(str, report.worst))
        return f"{symbol}: the formula is right but for element [{index}]: look at the indexing there"
    long = pattern.startswith("only the") and "axis" in pattern and report.shape[int(pattern.split()[-1])] > 2
    if long and pattern.startswith("only the last"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} only: does a loop or a slice stop one short?"
    if long and pattern.startswith("only the first along"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} only: does a loop or a slice begin one late?"
    if pattern == "the diagonal":
        return f"{symbol} is wrong on the diagonal only: is each element's effect on itself missing?"
    if pattern.endswith("the diagonal"):
        return f"{symbol} is wrong {pattern.replace('all but', 'everywhere but on')}, by no simple rule"
    if pattern.startswith("only"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} alone, by no simple rule"
    if pattern:
        return f"{symbol} is wrong in {pattern}, by no simple rule"
    return f"{symbol} is wrong by no simple rule; derive it again, or check the parts of the function one by one"
