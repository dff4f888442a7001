"""Where the wrong elements lie: the last row, the diagonal, the edges, places 3 to 5 along an axis, or where x < 0.

A condition on values is the simplest threshold, sign or equality on the argument's own value, or on a value with the
same index, that separates the wrong elements from the right ones. A few elements are easily separated by chance: of the
binomial(n, k) ways in which k of n can be wrong a threshold explains two, at an integer hardly any. So there must be
many ways, and more for a number with more digits.
"""

import math
from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.terms import spread

MOST = 6  # places that are listed one by one
OWN = 100  # so many ways there must be, to accept a threshold on the argument's own value
OTHER = 500  # and on another


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
    """The mistake that a place suggests."""
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


def branch(report: ArgumentReport, arrays: Arrays, y: tuple[np.ndarray, ...], dy: tuple[np.ndarray, ...]) -> str:
    """Where the wrong elements are, in terms of a value; "" if there is no simple condition."""
    wrong = report.wrong
    fine = np.isfinite(report.numeric) & ~wrong & ~report.kinks
    telling = fine & ((report.numeric != 0) | (report.analytic != 0))  # zero on both branches shows nothing
    if not wrong.any() or not fine.any():
        return ""
    found = [
        _parted(name, z[wrong], z[right], ways)
        for right in ((fine, telling) if telling.any() else ()) for name, z, ways in _values(report, arrays, y, dy)
    ]
    if any(found):  # the plainest number is the likeliest
        return min(filter(None, found), key=lambda words: len(words.split()[-1].lstrip("-")))
    return ""


def at_one_value(report: ArgumentReport, arrays: Arrays) -> str:
    """The one value at which the gradient is wrong, or the array that it equals there; nothing if there is none."""
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


def _values(
    report: ArgumentReport, arrays: Arrays, y: tuple[np.ndarray, ...], dy: tuple[np.ndarray, ...]
) -> Iterator[tuple[str, np.ndarray, int]]:
    yield report.name, arrays[report.name], OWN
    outputs = [("y" if len(y) == 1 else f"y[{i}]", one) for i, one in enumerate(y)]
    others = [(name, value) for name, value in arrays.items() if name != report.name and value.dtype.kind in "fiu"]
    cotangents = [("dy" if len(dy) == 1 else f"dy[{i}]", one) for i, one in enumerate(dy)]
    for name, array in (*others, *outputs, *cotangents):
        for value in spread(array, report.shape) if array.ndim else ():
            yield name, value, OTHER


def _parted(name: str, wrong: np.ndarray, right: np.ndarray, ways: int) -> str:
    """The condition that separates the values where the gradient is wrong from those where it is right."""
    for special in (0, 1, -1):
        if np.all(wrong == special) and np.any(right > special) and np.any(right < special):
            return "" if np.any(right == special) else f"{name} is {special}"
    words = _threshold(name, wrong, right) or _threshold(f"|{name}|", np.abs(wrong), np.abs(right))
    decimals = len(words.partition(".")[2])  # of more numbers one is more easily right by chance
    return words if math.comb(wrong.size + right.size, wrong.size) >= ways * 5**min(decimals, 2) else ""


def _threshold(name: str, wrong: np.ndarray, right: np.ndarray) -> str:
    if wrong.min() > right.max():
        return f"{name} > {_below(right.max(), wrong.min()):.6g}"
    if wrong.max() < right.min():
        return f"{name} < {_above(wrong.max(), right.min()):.6g}"
    return ""


def _below(low: float, high: float) -> float:
    """The plainest number from low on that is below high."""
    number = plain(low, high)
    return number if number < high else low


def _above(low: float, high: float) -> float:
    """The plainest number above low, up to high."""
    number = plain(low, high)
    return number if number > low else high


def plain(low: float, high: float) -> float:
    """The plainest number between two: 0, or the one with the fewest digits."""
    if low <= 0 <= high:
        return 0.0
    for digits in range(17):
        unit = 10.0**-digits
        number = math.ceil(low / unit) * unit
        if number <= high:
            return number
    return (low + high) / 2
