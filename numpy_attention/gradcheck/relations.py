"""How a wrong gradient relates to the right one, element by element: a factor, a transpose, a missing term."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.elements import Scalar
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport


class Relation(NamedTuple):
    """A pattern in a few words, and the mistake that makes it."""

    pattern: str
    mistake: str


def find(report: ArgumentReport, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]) -> Relation | None:
    """The first relation that explains every element that was looked at."""
    seen = np.isfinite(report.numeric)
    claimed, right = report.analytic[seen], report.numeric[seen]
    if not claimed.size or not np.any(report.wrong):
        return None
    tolerance = 4 * report.resolution[seen] + 1e-6 * float(np.max(np.abs(right), initial=0.0))

    def explains(candidate: np.ndarray) -> bool:
        return bool(np.all(np.abs(candidate - claimed) <= tolerance))

    if not np.any(claimed):
        return Relation("zero everywhere", "the backward gives zero: is a term lost, or does it cancel against itself?")
    enough = np.count_nonzero(np.abs(right) > 100 * tolerance) >= 2
    if enough:
        strongest = int(np.argmax(np.abs(right)))
        factor = float(claimed[strongest] / right[strongest])
        spread = np.abs(claimed - factor * right)
        if factor and bool(np.all(spread <= (1 + abs(factor)) * tolerance)):
            return _factor(factor, report, scalar, arrays, options)
    if report.analytic.size == 1 and abs(float(right[0])) > 100 * float(tolerance[0]):
        known = _factor(float(claimed[0] / right[0]), report, scalar, arrays, options)
        return None if known.mistake.startswith("right up to") else known  # any number is some factor of another
    if seen.all() and enough:
        for relation, candidate in _candidates(report, scalar, arrays):
            if candidate.shape == claimed.shape and explains(candidate):
                return relation
        return _difference(report, scalar, arrays, tolerance.reshape(report.shape))
    return None


def _factor(factor: float, report: ArgumentReport, scalar: Scalar, arrays: Arrays,
            options: Mapping[str, Any]) -> Relation:
    pattern = f"all by the constant factor {factor:.6g}"

    def near(value: float) -> bool:
        return abs(factor - value) <= 1e-4 * abs(value)

    if near(-1):
        return Relation("the sign", "the sign is wrong")
    if near(2):
        return Relation(pattern, "twice what it should be: a term is added twice, or a factor 1/2 is missing")
    shapes = {f"axis {i} of {name}": n for name, value in arrays.items() if isinstance(value, np.ndarray)
              for i, n in enumerate(value.shape)}
    if near(0.5):
        pairs = [where for where, n in shapes.items() if n == 2]
        mean = f", or a mean stands where the sum over the 2 of {pairs[0]} belongs" if pairs else ""
        return Relation(pattern, "half of what it should be: a factor 2 (of a square?) or one of two uses is missing"
                        + mean)
    if abs(factor - 1) < 0.02:
        return Relation(f"all by a factor of 1 {factor - 1:+.1e}",
                        f"right up to a factor of 1 {factor - 1:+.1e}: a rounded constant, or eps at another place?")
    for name, value in options.items():
        if isinstance(value, float) and value not in (0.0, 1.0):
            for number, words in [(value, f"{name} is applied once too often"), (1 / value, f"{name} is left out"),
                                  (1 - value, f"the factor 1/(1 - {name}) is left out"),
                                  (1 / (1 - value), f"the factor 1/(1 - {name}) is applied once too often")]:
                if near(number):
                    return Relation(pattern, words)
    shapes |= {f"all of {name}": value.size for name, value in arrays.items() if isinstance(value, np.ndarray)}
    for where, n in shapes.items():
        if n > 1:
            for number, words in [
                (n, f"a division by {n} ({where}) is missing: a mean whose 1/n was forgotten?"),
                (1 / n, f"divided by {n} ({where}) once too often: a mean taken where a sum belongs, or twice?"),
                (math.sqrt(n), f"sqrt({n}) ({where}) too large: is the scale 1/sqrt(d) left out of the backward?"),
                (1 / math.sqrt(n), f"sqrt({n}) ({where}) too small: is the scale 1/sqrt(d) applied twice?"),
            ]:
                if near(number):
                    return Relation(pattern, words)
    for name, value in arrays.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            counted = round(factor * value.size)
            if 0 < counted < value.size and near(counted / value.size):
                return Relation(pattern, f"{counted} / {value.size} of what it should be: a mean over all {value.size} "
                                         f"of {name}, where only {counted} count?")
    if len(scalar.dy) == 1 and scalar.dy[0].size == 1 and near(1 / float(scalar.dy[0].reshape(()))):
        return Relation(pattern, "dy itself, a single number here, is left out: multiply by it")
    return Relation(pattern, f"right up to the constant factor {factor:.6g}")


def _candidates(report: ArgumentReport, scalar: Scalar, arrays: Arrays) -> Iterator[tuple[Relation, np.ndarray]]:
    """Known wrong gradients made from the right one."""
    right = report.numeric
    for i, j in itertools.combinations(range(right.ndim), 2):
        if right.shape[i] == right.shape[j] > 1:
            yield Relation("transposed", f"transposed (axes {i} and {j})"), right.swapaxes(i, j).reshape(-1)
    for axis, n in enumerate(right.shape):
        if n > 2:
            for step in (1, -1):
                shifted = np.roll(right, step, axis).reshape(-1)
                yield Relation("shifted", f"shifted by one along axis {axis}: an offset by one?"), shifted
            yield Relation("reversed", f"reversed along axis {axis}"), np.flip(right, axis).reshape(-1)
        if n > 1:
            mean = np.broadcast_to(right.mean(axis, keepdims=True), right.shape).reshape(-1)
            yield Relation("averaged", f"averaged over axis {axis}: each element must keep its own"), mean
    for y, dy in zip(scalar.y, scalar.dy):
        if y.shape == right.shape:
            yield (Relation("the diagonal alone", "only the diagonal of the softmax's Jacobian, w (1 - w) dy: "
                            "every output of a row depends on every score of it"), (y * (1 - y) * dy).reshape(-1))
            for axis, n in enumerate(right.shape):
                if n > 1:
                    unweighted = y * (dy - dy.sum(axis, keepdims=True))
                    yield (Relation("the sum without its weights", f"w * (dy - sum(dy)) along axis {axis}: the sum "
                                    "must be weighted, sum(dy * w)"), unweighted.reshape(-1))


def _difference(report: ArgumentReport, scalar: Scalar, arrays: Arrays, tolerance: np.ndarray) -> Relation | None:
    """What must be added to the right gradient to give the wrong one?"""
    off = report.analytic - report.numeric
    size = float(np.max(np.abs(off)))
    slack = np.maximum(tolerance, 1e-6 * size)

    def constant(ratio: np.ndarray, weight: np.ndarray, axis: int) -> bool:
        mean = (ratio * weight**2).sum(axis, keepdims=True) / np.maximum((weight**2).sum(axis, keepdims=True), 1e-300)
        return bool(np.all(np.abs((ratio - mean) * weight) <= slack))

    hidden = (np.abs(report.numeric) <= tolerance) & report.wrong
    masks = [name for name, value in arrays.items() if isinstance(value, np.ndarray) and value.dtype == bool]
    if hidden.any() and np.array_equal(hidden, report.wrong) and not report.wrong.all():
        what = f"it leaks through what {masks[0]} hides" if masks else "what is hidden or ignored still gets a gradient"
        return Relation("not zero where it must be", f"wrong only where the gradient must be zero: {what}")
    for dy in scalar.dy:
        if dy.shape == off.shape and np.any(dy):
            for sign, words in ((-1, "is short by dy: the identity path of a residual branch is left out"),
                                (1, "is too large by dy: a residual path that is not there, or added twice")):
                if np.all(np.abs(off - sign * dy) <= slack):
                    return Relation("off by dy", words)
    for axis in range(off.ndim - 1, -1, -1):
        if off.shape[axis] < 3:
            continue
        if constant(off, np.ones_like(off), axis):
            return Relation(f"off by the same number along axis {axis}",
                            f"every row along axis {axis} is off by the same number: is a `- mean(...)` or a "
                            "`- sum(...)` term missing?")
        for y in scalar.y:
            if y.shape == off.shape and np.count_nonzero(y) == y.size and constant(off / y, y, axis):
                return Relation(f"off by a multiple of the output along axis {axis}",
                                f"every row along axis {axis} is off by a multiple of the output: did the softmax's "
                                "`- sum(dy * w)` go missing?")
        x = arrays[report.name]
        centred = x - x.mean(axis, keepdims=True)
        for term in (centred, x):
            if np.count_nonzero(term) == term.size and constant(off / term, term, axis):
                return Relation(f"off by a multiple of {report.name} along axis {axis}",
                                f"every row along axis {axis} is off by a multiple of {report.name}: is the path "
                                "through the variance (or the mean square) missing, or scaled otherwise than in "
                                "the forward (n - 1 for n)?")
    for axis in range(off.ndim - 1, -1, -1):
        right, every_row = report.numeric, report.wrong.any(axis=axis).all()
        if off.shape[axis] > 2 and every_row and np.all(right) and constant(report.analytic / right, right, axis):
            return Relation(f"every row along axis {axis} by a factor of its own",
                            f"every row along axis {axis} has the right direction and another length: is a factor that "
                            "differs from row to row left out, such as 1 / standard deviation, or applied twice?")
    ours, theirs = np.sort(report.analytic.reshape(-1)), np.sort(report.numeric.reshape(-1))
    if report.wrong.mean() > 0.5 and np.allclose(ours, theirs, rtol=1e-6, atol=float(slack.max())):
        return Relation("the right numbers in the wrong places",
                        "the right numbers stand in the wrong places: a reshape without its transpose?")
    if report.wrong.mean() > 0.5 and size < 0.02 * float(np.max(np.abs(report.numeric))):
        return Relation("close, but not equal",
                        "close, but not equal: has the backward another formula than the forward (the other form of "
                        "gelu, another eps, n - 1 for n, a rounded constant)?")
    return None


def place(wrong: np.ndarray, seen: np.ndarray) -> str:
    """Where the wrong elements lie, in a few words."""
    count = int(wrong.sum())
    if seen.sum() < wrong.size:
        return "" if count > 1 else "a single element"
    if count == wrong.size:
        return "every element"
    if count == 1:
        return "a single element"
    for axis, n in enumerate(wrong.shape):
        others = tuple(i for i in range(wrong.ndim) if i != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        if len(hit) == 1 and n > 1:
            index = int(hit[0])
            which = "the last" if index == n - 1 else "the first" if index == 0 else f"number {index}"
            return f"only {which} along axis {axis}"
    if wrong.ndim >= 2 and wrong.shape[-1] == wrong.shape[-2] > 1:
        eye = np.broadcast_to(np.eye(wrong.shape[-1], dtype=bool), wrong.shape)
        if np.array_equal(wrong, eye):
            return "the diagonal"
        if np.array_equal(wrong, ~eye):
            return "all but the diagonal"
        for name, triangle in (("above", np.triu), ("below", np.tril)):
            if not np.any(triangle(wrong)) and not np.any(wrong & eye):
                return f"nothing {name} the diagonal"
    for axis in range(wrong.ndim):
        lines = wrong.any(axis=axis, keepdims=True)
        if np.array_equal(np.broadcast_to(lines, wrong.shape), wrong):
            return f"{int(lines.sum())} of {lines.size} whole lines along axis {axis}"
    return ""


def place_in_words(report: ArgumentReport) -> str:
    """The mistake that a place suggests."""
    pattern, symbol = report.pattern, report.symbol
    if pattern == "a single element":
        index = ", ".join(map(str, report.worst))
        return f"{symbol}: the formula is right but for element [{index}]: look at the indexing there"
    if pattern.startswith("only the last"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} only: does a loop or a slice stop one short?"
    if pattern.startswith("only the first"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} only: does a loop or a slice begin one late?"
    if pattern == "the diagonal":
        return f"{symbol} is wrong on the diagonal only: is each element's effect on itself missing?"
    if pattern:
        return f"{symbol} is wrong in {pattern.removeprefix('only ')}, by no simple rule"
    return f"{symbol} is wrong by no simple rule; derive it again, or check the parts of the function one by one"
