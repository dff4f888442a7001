"""How a wrong gradient relates to the right one, element by element.

The differences know the right gradient g, the backward said c. Three questions, from the simplest:

    c = a g        is it a factor? -1 is a sign, 2 a term added twice, n a mean that became a sum, sqrt(n) a scale
    c = f(g)       is it the right gradient transposed, shifted, reversed, averaged, or another known wrong formula?
    c - g          what must be added to g: dy, the same number for each row, a multiple of x, of the output?

A relation counts only if it explains every element that was looked at.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.line import Scalar, largest
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
    arrays = {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}
    tolerance = 4 * report.resolution[seen] + 1e-6 * largest(right)

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
        for relation, candidate in _candidates(report, scalar):
            if np.all(np.abs(candidate.reshape(-1) - claimed) <= tolerance):
                return relation
        return _difference(report, scalar, arrays, tolerance.reshape(report.shape))
    return None


def _factor(
    factor: float, report: ArgumentReport, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]
) -> Relation:
    """What a factor means: the first of the known ones that it is."""
    if abs(factor - 1) < 0.02:
        near = f"a factor of 1 {factor - 1:+.1e}"
        return Relation(f"all by {near}", f"right up to {near}: a rounded constant, or eps at another place?")
    pattern = f"all by the constant factor {factor:.6g}"
    for number, mistake in _known_factors(factor, scalar, arrays, options):
        if abs(factor - number) <= 1e-4 * abs(number):
            return Relation("the sign" if number == -1 else pattern, mistake)
    return Relation(pattern, f"right up to the constant factor {factor:.6g}")


def _known_factors(
    factor: float, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]
) -> Iterator[tuple[float, str]]:
    """Numbers that stand in the formula, and the mistake that leaves each as a factor; the plainest first."""
    shapes = {f"axis {i} of {name}": n for name, value in arrays.items() for i, n in enumerate(value.shape)}
    pairs = [where for where, n in shapes.items() if n == 2]
    mean = f", or a mean stands where the sum over the 2 of {pairs[0]} belongs" if pairs else ""
    yield -1, "the sign is wrong"
    yield 2, "twice what it should be: a term is added twice, or a factor 1/2 is missing"
    yield 0.5, "half of what it should be: a factor 2 (of a square?) or one of two uses is missing" + mean
    for name, value in options.items():
        if isinstance(value, float) and value not in (0.0, 1.0):
            yield value, f"{name} is applied once too often"
            yield 1 / value, f"{name} is left out"
            yield 1 - value, f"the factor 1/(1 - {name}) is left out"
            yield 1 / (1 - value), f"the factor 1/(1 - {name}) is applied once too often"
    shapes |= {f"all of {name}": value.size for name, value in arrays.items()}
    for where, n in shapes.items():
        if n > 1:
            yield n, f"a division by {n} ({where}) is missing: a mean whose 1/n was forgotten?"
            yield 1 / n, f"divided by {n} ({where}) once too often: a mean taken where a sum belongs, or twice?"
            yield math.sqrt(n), f"sqrt({n}) ({where}) too large: is the scale 1/sqrt(d) left out of the backward?"
            yield 1 / math.sqrt(n), f"sqrt({n}) ({where}) too small: is the scale 1/sqrt(d) applied twice?"
    for name, value in arrays.items():
        n, counted = value.size, round(factor * value.size)
        if value.dtype.kind in "iu" and 0 < counted < n:
            where = f"a mean over all {n} of {name}, where only {counted} count?"
            yield counted / n, f"{counted} / {n} of what it should be: {where}"
    if len(scalar.dy) == 1 and scalar.dy[0].size == 1:
        yield 1 / float(scalar.dy[0].reshape(())), "dy itself, a single number here, is left out: multiply by it"


def _candidates(report: ArgumentReport, scalar: Scalar) -> Iterator[tuple[Relation, np.ndarray]]:
    """Known wrong gradients made from the right one, or from the outputs and dy."""
    right = report.numeric
    for i, j in itertools.combinations(range(right.ndim), 2):
        if right.shape[i] == right.shape[j] > 1:
            yield Relation("transposed", f"transposed (axes {i} and {j})"), right.swapaxes(i, j)
    for axis, n in enumerate(right.shape):
        if n > 2:
            shifted = Relation("shifted", f"shifted by one along axis {axis}: an offset by one?")
            yield shifted, np.roll(right, 1, axis)
            yield shifted, np.roll(right, -1, axis)
            yield Relation("reversed", f"reversed along axis {axis}"), np.flip(right, axis)
        if n > 1:
            averaged = Relation("averaged", f"averaged over axis {axis}: each element must keep its own")
            yield averaged, np.broadcast_to(right.mean(axis, keepdims=True), right.shape)
    diagonal = Relation(
        "the diagonal alone",
        "only the diagonal of the softmax's Jacobian, w (1 - w) dy: every output of a row depends on every score of it",
    )
    for y, dy in zip(scalar.y, scalar.dy):
        if y.shape == right.shape:
            yield diagonal, y * (1 - y) * dy
            for axis, n in enumerate(right.shape):
                if n > 1:
                    yield Relation(
                        "the sum without its weights",
                        f"w * (dy - sum(dy)) along axis {axis}: the sum must be weighted, sum(dy * w)",
                    ), y * (dy - dy.sum(axis, keepdims=True))


def _difference(report: ArgumentReport, scalar: Scalar, arrays: Arrays, tolerance: np.ndarray) -> Relation | None:
    """What must be added to the right gradient to give the wrong one?"""
    off = report.analytic - report.numeric
    size = largest(off)
    slack = np.maximum(tolerance, 1e-6 * size)

    def constant(ratio: np.ndarray, weight: np.ndarray, axis: int) -> bool:
        mean = (ratio * weight**2).sum(axis, keepdims=True) / np.maximum((weight**2).sum(axis, keepdims=True), 1e-300)
        return bool(np.all(np.abs((ratio - mean) * weight) <= slack))

    hidden = (np.abs(report.numeric) <= tolerance) & report.wrong
    masks = [name for name, value in arrays.items() if value.dtype == bool]
    if hidden.any() and np.array_equal(hidden, report.wrong) and not report.wrong.all():
        what = f"it leaks through what {masks[0]} hides" if masks else "what is hidden or ignored still gets a gradient"
        return Relation("not zero where it must be", f"wrong only where the gradient must be zero: {what}")
    for dy in scalar.dy:
        if dy.shape == off.shape and np.any(dy):
            if np.all(np.abs(off + dy) <= slack):
                return Relation("off by dy", "is short by dy: the identity path of a residual branch is left out")
            if np.all(np.abs(off - dy) <= slack):
                return Relation("off by dy", "is too large by dy: a residual path that is not there, or added twice")
    for axis in range(off.ndim - 1, -1, -1):
        if off.shape[axis] < 3:
            continue
        if constant(off, np.ones_like(off), axis):
            return Relation(
                f"off by the same number along axis {axis}",
                f"every row along axis {axis} is off by the same number: is a `- mean(...)` or a `- sum(...)` term "
                "missing?"
            )
        for y in scalar.y:
            if y.shape == off.shape and np.count_nonzero(y) == y.size and constant(off / y, y, axis):
                return Relation(
                    f"off by a multiple of the output along axis {axis}",
                    f"every row along axis {axis} is off by a multiple of the output: did the softmax's "
                    "`- sum(dy * w)` go missing?"
                )
        x = arrays[report.name]
        centred = x - x.mean(axis, keepdims=True)
        for term in (centred, x):
            if np.count_nonzero(term) == term.size and constant(off / term, term, axis):
                return Relation(
                    f"off by a multiple of {report.name} along axis {axis}",
                    f"every row along axis {axis} is off by a multiple of {report.name}: is the path "
                    "through the variance (or the mean square) missing, or scaled otherwise than in "
                    "the forward (n - 1 for n)?"
                )
    for axis in range(off.ndim - 1, -1, -1):
        right, every_row = report.numeric, report.wrong.any(axis=axis).all()
        if off.shape[axis] > 2 and every_row and np.all(right) and constant(report.analytic / right, right, axis):
            return Relation(
                f"every row along axis {axis} by a factor of its own",
                f"every row along axis {axis} has the right direction and another length: is a factor that "
                "differs from row to row left out, such as 1 / standard deviation, or applied twice?"
            )
    ours, theirs = np.sort(report.analytic.reshape(-1)), np.sort(report.numeric.reshape(-1))
    if report.wrong.mean() > 0.5 and np.allclose(ours, theirs, rtol=1e-6, atol=float(slack.max())):
        return Relation(
            "the right numbers in the wrong places",
            "the right numbers stand in the wrong places: a reshape without its transpose?"
        )
    if report.wrong.mean() > 0.5 and size < 0.02 * largest(report.numeric):
        return Relation(
            "close, but not equal",
            "close, but not equal: has the backward another formula than the forward (the other form of "
            "gelu, another eps, n - 1 for n, a rounded constant)?"
        )
    return None
