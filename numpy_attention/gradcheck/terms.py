"""Two forms of a wrong gradient: the right gradient times a factor, or plus a term.

    c = a g            a number: a sign, a mean instead of a sum, a missing scale (`factor_in_words`)
    c = g + ...        (`added`)
        one number for each row           a mean or a sum is missing
        a multiple of x, of the output    the path through a variance, a length, a softmax
        other places                      the right numbers, but shifted by one or in another order

Each relation is tested on the whole gradient, or only on its wrong elements. Any two numbers are related by a factor,
so a relation needs several elements, and must explain the error in each element.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Scalar, largest
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport

ORDER = "a permutation instead of its inverse, or a reshape without its transpose?"


def slack_of(report: ArgumentReport, part: np.ndarray) -> np.ndarray:
    """The error that is allowed in a relation: the tolerance of the part, and a small share of the error in it."""
    off = largest(report.analytic[part] - report.numeric[part])
    slack: np.ndarray = 4 * report.resolution[part] + min(1e-6 * largest(report.numeric[part]), 1e-3 * off)
    return slack


def constant(report: ArgumentReport, part: np.ndarray) -> float:
    """The one factor between wrong and right elements of a part; 0 if no factor fits."""
    analytic, right, slack = report.analytic[part], report.numeric[part], slack_of(report, part)
    strongest = int(np.argmax(np.abs(right)))
    factor = float(analytic[strongest] / right[strongest]) if right[strongest] else 0.0
    fits = abs(factor) > 1e-4 and np.all(np.abs(analytic - factor * right) <= (1 + abs(factor)) * slack)
    # A factor within the round-off of one element explains nothing.
    return factor if fits and abs(factor - 1) * abs(right[strongest]) > slack[strongest] else 0.0


def factor_in_words(factor: float, evidence: Evidence) -> tuple[str, bool]:
    """The mistake that a factor indicates, and whether the factor is one of the known ones."""
    if abs(factor - 1) < 1e-9:
        near = f"{abs(factor - 1):.1e}"
        return f"right to {near}, but wrong by the same factor everywhere: a constant with too few digits?", False
    if abs(factor - 1) < 0.02:
        return f"right up to a factor of 1 {factor - 1:+.1e}: a rounded constant, or eps at a wrong place?", False
    for number, mistake in _known_factors(factor, evidence):
        if abs(factor - number) <= 1e-6 * abs(number):
            return mistake, True
    return f"right up to the constant factor {factor:.6g}", False


def _known_factors(factor: float, evidence: Evidence) -> Iterator[tuple[float, str]]:
    """Numbers of the formula, each with the mistake that causes this factor; the simplest first."""
    arrays, scalar = evidence.arrays, evidence.scalar
    shapes = {f"axis {i} of {name}": n for name, value in arrays.items() for i, n in enumerate(value.shape)}
    pairs = [where for where, n in shapes.items() if n == 2]
    mean = f", or a mean replaces the sum over the 2 elements of {pairs[0]}" if pairs else ""
    yield -1, "the sign is wrong"
    yield 2, "twice what it should be: a term is added twice, or a factor 1/2 is missing"
    yield 0.5, "half of what it should be: a factor 2 (of a square?) or one of two uses is missing" + mean
    for name, value in evidence.problem.options.items():
        if isinstance(value, float) and value not in (0.0, 1.0):
            yield value, f"{name} is applied once too often"
            yield 1 / value, f"{name} is left out"
            yield 1 - value, f"the factor 1/(1 - {name}) is left out"
            yield 1 / (1 - value), f"the factor 1/(1 - {name}) is applied once too often"
    shapes |= {f"all of {name}": value.size for name, value in arrays.items()}
    for dy in scalar.dy:
        for many in range(1, dy.ndim + 1):
            for axes in itertools.combinations(range(dy.ndim), many):
                which = f"axes {axes}" if many > 1 else f"axis {axes[0]}"
                shapes.setdefault(f"{which} of the output", math.prod(dy.shape[axis] for axis in axes))
    for where, n in shapes.items():
        if n > 1:
            forgotten = "is the 1/n of a mean missing, or is a scale sqrt(n) instead of 1/sqrt(n)?"
            yield n, f"a division by {n} ({where}) is missing: {forgotten}"
            yield 1 / n, f"divided by {n} ({where}) once too often: a mean instead of a sum, or a mean applied twice?"
            yield math.sqrt(n), f"sqrt({n}) ({where}) too large: is the scale 1/sqrt(d) left out of the backward?"
            yield 1 / math.sqrt(n), f"sqrt({n}) ({where}) too small: is the scale 1/sqrt(d) applied twice?"
    for name, value in arrays.items():
        n, counted = value.size, round(factor * value.size)
        if value.dtype.kind in "iu" and 0 < counted < n:
            yield counted / n, f"{counted} / {n}: a mean over all {n} of {name}, but only {counted} count?"
    if len(scalar.dy) == 1 and scalar.dy[0].size == 1:
        yield 1 / float(scalar.dy[0].reshape(())), "dy, a single number here, is left out: multiply by dy"
    if factor and abs(1 / factor) > 1.5 and abs(1 / factor - round(1 / factor)) < 1e-9:
        n = round(1 / factor)
        mistake = f"the factor {n} is left out, or a division by {n} is applied once too often"
        yield 1 / n, f"1/{n} of what it should be: {mistake}"


def of_probabilities(report: ArgumentReport, x: np.ndarray) -> str:
    """The mistake, if a gradient is a number times p - y or (p - y) / (p (1 - p)), for labels y and p of x; else ""."""
    e, c = np.exp(x - x.max()), report.analytic
    probabilities = [x, 1 / (1 + np.exp(-x)), *(e / e.sum(axis, keepdims=True) for axis in range(x.ndim))]
    for p in probabilities if x.size > 3 else ():
        for label, product in itertools.product((0, 1), (c * p * (1 - p), c if p is x else 0 * c)):
            number = product.flat[0] / (p.flat[0] - label)
            y = p - product / number
            if not ((p > 0) & (p < 1)).all() or not 0 < y.sum() < y.size or largest(y - (y > 0.5)) > 1e-6:
                continue
            if product is c:
                return f"p - y is the gradient with respect to logits, but {report.name} holds the probabilities p"
            return (
                "(p - y) / (p (1 - p)) is the gradient of a binary loss with respect to the probability p; for a "
                "softmax over classes it is p - y with respect to the logits, and -y / p with respect to p"
            )
    return ""


def added(report: ArgumentReport, scalar: Scalar, arrays: Arrays, slack: np.ndarray) -> str:
    """The mistake, if the wrong gradient lacks a term, or has its elements at wrong places; else ""."""
    mistake = _off_in_each_row(report, scalar, arrays, slack) or _shifted(report, slack)
    if not mistake and same_numbers(report.analytic[report.wrong], report.numeric[report.wrong]):
        return f"the right numbers are in the wrong places: {ORDER}"
    if not mistake and report.wrong.mean() > 0.5 and report.error < 0.02:
        return (
            "close, but not equal: does the backward use a different formula than the forward (the other form of "
            "gelu, a different eps, n - 1 instead of n, a rounded constant)?"
        )
    return mistake


def _off_in_each_row(report: ArgumentReport, scalar: Scalar, arrays: Arrays, slack: np.ndarray) -> str:
    """The mistake, if each row has a wrong length, or is off by a number, or by a multiple of x or y; else ""."""
    off, x, right = report.analytic - report.numeric, arrays[report.name], report.numeric

    def multiple(weight: np.ndarray, axis: int) -> bool:
        if weight.shape != off.shape or not np.all(np.any(weight, axis)):
            return False
        times = (off * weight).sum(axis, keepdims=True) / (weight**2).sum(axis, keepdims=True)
        return bool(np.all(np.abs(off - times * weight) <= (2 + np.abs(times)) * slack))

    for axis in (axis for axis in reversed(range(off.ndim)) if off.shape[axis] > 2):
        if report.wrong.any(axis=axis).all() and largest(off + right) > 1e-6 * largest(right) and multiple(right, axis):
            return (
                f"every row along axis {axis} has the right direction and a wrong length: is a factor that differs "
                "from row to row, such as 1/length, 1/sum or an eps in it, left out or applied twice?"
            )
        if multiple(np.ones_like(off), axis):
            return (
                f"every row along axis {axis} is off by the same number in all its elements: is a `- mean(...)` or a "
                "`- sum(...)` term missing?"
            )
        for term, path in ((x - x.mean(axis, keepdims=True), "variance"), (x, "length")):
            if multiple(term, axis):
                return (
                    f"every row along axis {axis} is off by a multiple of {report.name}: is the path through the "
                    f"{path} (or the mean square) missing, or scaled differently than in the forward"
                    + (" (n - 1 instead of n)?" if path == "variance" else "?")
                )
        for y in (y for y in scalar.y if multiple(y, axis)):
            softmax = np.all(y > 0) and np.allclose(y.sum(axis), 1.0)
            missing = "the path through a sum along that axis missing"
            missing = "the softmax's `- sum(dy * w)` missing, or not weighted by w" if softmax else missing
            return f"every row along axis {axis} is off by a multiple of the output: is {missing}?"
    return ""


def _shifted(report: ArgumentReport, slack: np.ndarray) -> str:
    """The mistake, if each element is shifted by one place along an axis; else ""."""
    close = 4 * float(slack.max())
    for axis, n in enumerate(report.shape):
        later, earlier = range(1, n), range(n - 1)
        for ours, theirs in ((later, earlier), (earlier, later)) if n > 2 else ():
            moved = report.numeric.take(theirs, axis)
            if np.ptp(moved) > 100 * close and largest(report.analytic.take(ours, axis) - moved) <= close:
                return f"shifted by one along axis {axis}: an index off by one, or a padding cut at the wrong side?"
    return ""


def same_numbers(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays hold the same numbers, at least three of them different, in different orders."""
    one, other, close = one.reshape(-1), other.reshape(-1), 1e-6 * largest(other)
    varied = np.count_nonzero(np.diff(np.sort(other)) > 100 * close) > 1
    return bool(varied and largest(np.sort(one) - np.sort(other)) <= close < largest(one - other))
