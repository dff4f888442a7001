"""Where the wrong elements are: the last row, the diagonal, places 3 to 5 along an axis, or where x < 0.

A condition is the simplest threshold, sign or equality that separates the wrong elements from the right ones. It may
use the value of the argument itself, or a value of another array at the same index. A condition can separate a few
elements by chance: k of n elements can be wrong in binomial(n, k) ways, and a threshold explains two of them. So a
condition is accepted only if binomial(n, k) is large; a threshold with more digits needs an even larger number.
"""

import math
from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.terms import spread

MOST = 6  # at most so many places are listed
OWN = 100  # a threshold on the value of the argument is accepted from this many ways on
OTHER = 500  # the same for a value of another array


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
    if long and pattern.startswith("only the last place"):
        return f"{symbol} is wrong only in {where}: does a loop or a slice end one place early?"
    if long and pattern.startswith("only the first place"):
        return f"{symbol} is wrong only in {where}: does a loop or a slice begin one place late?"
    if pattern == "the diagonal":
        return f"{symbol} is wrong on the diagonal only: is the effect of each element on itself missing?"
    if pattern.startswith("only"):
        return f"{symbol} is wrong only in {where}{no_rule}"
    if pattern:
        return f"{symbol} is wrong in {pattern}{no_rule}"
    return f"{symbol} is wrong (no simple rule found); derive it again, or check each part of the function"


def branch(report: ArgumentReport, arrays: Arrays, y: tuple[np.ndarray, ...], dy: tuple[np.ndarray, ...]) -> str:
    """The condition on a value, such as x < 0, under which elements are wrong; "" if there is no simple condition."""
    wrong = report.wrong
    fine = np.isfinite(report.numeric) & ~wrong & ~report.kinks
    telling = fine & ((report.numeric != 0) | (report.analytic != 0))  # both gradients zero: the element proves nothing
    if not wrong.any() or not fine.any():
        return ""
    found = [
        _separation(name, z[wrong], z[right], ways)
        for right in ((fine, telling) if telling.any() else ()) for name, z, ways in _values(report, arrays, y, dy)
    ]
    if any(found):  # the shortest number is the most likely one
        return min(filter(None, found), key=lambda condition: len(condition.split()[-1].lstrip("-")))
    return ""


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


def _separation(name: str, wrong: np.ndarray, right: np.ndarray, ways: int) -> str:
    """The condition that separates the values where the gradient is wrong from those where it is right."""
    for special in (0, 1, -1):
        if np.all(wrong == special) and np.any(right > special) and np.any(right < special):
            return "" if np.any(right == special) else f"{name} is {special}"
    condition = _threshold(name, wrong, right) or _threshold(f"|{name}|", np.abs(wrong), np.abs(right))
    decimals = len(condition.partition(".")[2])  # a number with many digits fits more easily by chance
    return condition if math.comb(wrong.size + right.size, wrong.size) >= ways * 5**min(decimals, 2) else ""


def _threshold(name: str, wrong: np.ndarray, right: np.ndarray) -> str:
    for sign, bound, limit in ((">", right.max(), wrong.min()), ("<", right.min(), wrong.max())):
        if bound < limit if sign == ">" else bound > limit:
            number = shortest(*sorted((bound, limit)))
            return f"{name} {sign} {bound if number == limit else number:.6g}"
    return ""


def shortest(low: float, high: float) -> float:
    """The shortest number in [low, high]: 0, or the number with the fewest digits."""
    if low <= 0 <= high:
        return 0.0
    for digits in range(17):
        unit = 10.0**-digits
        number = math.ceil(low / unit) * unit
        if number <= high:
            return number
    return (low + high) / 2
