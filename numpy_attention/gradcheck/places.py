"""Where the wrong elements are: the last row, the diagonal, places 3 to 5 along an axis, one value of an argument."""

import numpy as np

from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport

MOST = 6  # at most so many places are listed


def place(wrong: np.ndarray, seen: np.ndarray) -> str:
    """Where the wrong elements are, in a few words; "" if there is no simple description."""
    count = int(wrong.sum())
    if seen.sum() < wrong.size:
        return "" if count > 1 else "a single element"
    if count == wrong.size:
        return "every element"
    if count == 1:
        return "a single element"
    if wrong.ndim >= 2 and (wrong == np.eye(wrong.shape[-2], wrong.shape[-1], dtype=bool)).all():
        return "the diagonal"
    hits = [np.flatnonzero(wrong.any(axis=_others(wrong, axis))) for axis in range(wrong.ndim)]
    cut = [axis for axis, hit in enumerate(hits) if len(hit) < wrong.shape[axis]]
    box = np.zeros_like(wrong)
    box[np.ix_(*hits)] = True
    if cut and (count == box.sum() or count > max(7, 0.6 * box.sum())):  # a wrong factor leaves zeros right
        return "only " + " and ".join(
            f"{indices_in_words(hits[axis], wrong.shape[axis])} along axis {axis}" for axis in cut
        )
    return ""


def indices_in_words(indices: np.ndarray, n: int) -> str:
    """Some of n places along an axis, in words: the last place, places 2 to 4, places 1, 4, 6."""
    if len(indices) == 1:
        index = int(indices[0])
        return "the last place" if index == n - 1 else "the first place" if index == 0 else f"place {index}"
    if np.all(np.diff(indices) == 1):
        return f"places {indices[0]} to {indices[-1]}"
    return "places " + ", ".join(map(str, indices[:MOST])) + (" ..." if len(indices) > MOST else "")


def _others(x: np.ndarray, axis: int) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if i != axis)


def place_in_words(report: ArgumentReport, cause_known: bool = False) -> str:
    """The mistake that the place of the wrong elements suggests; with a known cause, often the place alone."""
    pattern, symbol = report.pattern, report.symbol
    no_rule = "" if cause_known else " (no simple rule found)"
    if pattern == "a single element":
        index = ", ".join(map(str, report.worst))
        return f"{symbol}: right except for element [{index}]: check the indexing there"
    where = pattern.removeprefix("only ")
    long = pattern.startswith("only the") and "axis" in pattern and report.shape[int(pattern.split()[-1])] > 2
    if long:
        how = "end one place early" if "last" in pattern else "begin one place late"
        return f"{symbol} is wrong only in {where}: does a loop or a slice {how}?"
    if pattern:
        return f"{symbol} is wrong {'only ' * pattern.startswith('only')}in {where}{no_rule}"
    return f"{symbol} is wrong (no simple rule found); derive it again, or check each part of the function"


def at_one_value(report: ArgumentReport, arrays: Arrays) -> str:
    """The one value at which the gradient is wrong, or the array that the argument equals there; else ""."""
    own, wrong = arrays[report.name], report.wrong
    fine = np.isfinite(report.numeric) & ~wrong & ~report.kinks
    if not wrong.any() or wrong.all():
        return ""
    for value in (0, 1, -1):
        if np.all(own[wrong] == value) and not np.any(own[fine] == value) and np.any(own != value):
            return f"{report.name} is exactly {value}"
    for name, other in arrays.items():
        if name != report.name and other.dtype == own.dtype and other.shape == own.shape:
            equal = own == other
            if equal[wrong].all() and not equal[fine].any() and not equal.all():
                return f"{report.name} and {name} are equal"
    return ""
