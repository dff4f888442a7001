"""A backward that is wrong only where a value is: where x < 0, where x > 1 or x < -1, where two branches meet.

The simplest threshold, sign or equality on the argument's own value, or on what stands beside it, that parts the wrong
elements from the right ones. Chance parts a few elements easily: of the binomial(n, k) ways in which k of n can be
wrong a threshold explains two, at an integer hardly any. So there must be many ways, and more for a number of more
digits.
"""

import math
from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.problems.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.words.terms import spread

OWN = 100  # so many ways there must be, to believe a threshold on the argument's own value
OTHER = 500  # and on another


def branch(report: ArgumentReport, arrays: Arrays, y: tuple[np.ndarray, ...], dy: tuple[np.ndarray, ...]) -> str:
    """Where the wrong elements are, in terms of a value; nothing if no simple value tells."""
    wrong = report.wrong
    fine = np.isfinite(report.numeric) & ~wrong & ~report.kinks
    telling = fine & ((report.numeric != 0) | (report.analytic != 0))  # zero on both branches tells nothing
    if not wrong.any() or not fine.any():
        return ""
    found = [
        _parted(name, z[wrong], z[right], ways)
        for right in ((fine, telling) if telling.any() else ()) for name, z, ways in _values(report, arrays, y, dy)
    ]
    if any(found):  # the plainest number is the likeliest
        return min(filter(None, found), key=lambda words: len(words.split()[-1].lstrip("-")))
    for name, value, ways in _values(report, arrays, y, dy) if telling.any() else ():
        words = _between(name, value[wrong], value[telling], ways)
        if words:
            return words
    own = arrays[report.name]
    for axis, n in enumerate(own.shape):
        if n > 2 and n ** (own.size / n) >= OTHER:
            for word, extreme in (("largest", np.max), ("smallest", np.min)):
                if np.array_equal(wrong, own == extreme(own, axis=axis, keepdims=True)):
                    return f"{report.name} is the {word} along axis {axis}"
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
    """The words that part the values where the gradient is wrong from those where it is right."""
    for special in (0, 1, -1):
        if np.all(wrong == special) and np.any(right > special) and np.any(right < special):
            return "" if np.any(right == special) else f"{name} is {special}"
    words = _threshold(name, wrong, right) or _threshold(f"|{name}|", np.abs(wrong), np.abs(right))
    decimals = len(words.partition(".")[2])  # of more numbers one is more easily right by chance
    return words if math.comb(wrong.size + right.size, wrong.size) >= ways * 5**min(decimals, 2) else ""


def _between(name: str, wrong: np.ndarray, right: np.ndarray, ways: int) -> str:
    """The same for an interval, of which there are many more."""
    low, high, n = wrong.min(), wrong.max(), wrong.size + right.size
    below, above = right[right < low], right[right > high]
    if below.size + above.size < right.size or not below.size or not above.size or math.comb(n, wrong.size) < ways * n:
        return ""
    return f"{_below(below.max(), low):.6g} < {name} < {_above(high, above.min()):.6g}"


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
