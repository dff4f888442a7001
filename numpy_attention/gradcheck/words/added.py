"""What must be added to the right gradient to give the wrong one: c - g, or the same numbers in other places.

    dy, dy * z                          a term of a sum or of the product rule, left out or with the wrong sign
    the same number for each row        a mean or a sum that is missing
    a multiple of x, of the output      the path through a variance, a length, a softmax
    other places                        shifted by one, in another order
"""

import itertools

import numpy as np

from numpy_attention.gradcheck.numbers.line import Scalar, largest
from numpy_attention.gradcheck.problems.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.words.factors import Relation
from numpy_attention.gradcheck.words.terms import Term, spread


def added(
    report: ArgumentReport, scalar: Scalar, arrays: Arrays, slack: np.ndarray, terms: list[Term]
) -> Relation | None:
    """The first way in which the wrong gradient is the right one and something more, or the right one elsewhere."""
    off = report.analytic - report.numeric
    size = largest(off)

    def same(ratio: np.ndarray, weight: np.ndarray, axis: int) -> bool:
        mean = (ratio * weight**2).sum(axis, keepdims=True) / np.maximum((weight**2).sum(axis, keepdims=True), 1e-300)
        return bool(np.all(np.abs((ratio - mean) * weight) <= slack))

    for dy in scalar.dy:
        if dy.shape == off.shape and np.any(dy):
            if np.all(np.abs(off + dy) <= slack):
                return Relation("off by dy", "is short by dy: the identity path of a residual branch is left out")
            if np.all(np.abs(off - dy) <= slack):
                return Relation("off by dy", "is too large by dy: a residual path that is not there, or added twice")
    words = _term_of_a_sum(off, slack, scalar, terms)
    if words:
        return Relation("off by a term", words)
    relation = _factor_of_each_row(report, slack)
    if relation:
        return relation
    for axis in range(off.ndim - 1, -1, -1):
        if off.shape[axis] < 3:
            continue
        if same(off, np.ones_like(off), axis):
            return Relation(
                f"off by the same number along axis {axis}",
                f"every row along axis {axis} is off by the same number: is a `- mean(...)` or a `- sum(...)` term "
                "missing?"
            )
        x = arrays[report.name]
        centred = x - x.mean(axis, keepdims=True)
        for term, path in ((centred, "variance"), (x, "length")):
            if np.count_nonzero(term) == term.size and same(off / term, term, axis):
                return Relation(
                    f"off by a multiple of {report.name} along axis {axis}",
                    f"every row along axis {axis} is off by a multiple of {report.name}: is the path through the "
                    f"{path} (or the mean square) missing, or scaled otherwise than in the forward"
                    + (" (n - 1 for n)?" if path == "variance" else "?")
                )
        for y in scalar.y:
            if y.shape == off.shape and np.count_nonzero(y) == y.size and same(off / y, y, axis):
                softmax = np.all(y > 0) and np.allclose(y.sum(axis), 1.0)
                path = "did the softmax's `- sum(dy * w)` go missing?" if softmax else (
                    "is the path through a sum along that axis missing?")
                return Relation(
                    f"off by a multiple of the output along axis {axis}",
                    f"every row along axis {axis} is off by a multiple of the output: {path}"
                )
    words = _shifted(report, slack)
    if words:
        return Relation("shifted", words)
    words = _reordered(report, slack)
    if words:
        return Relation("the right numbers in the wrong places", words)
    if report.wrong.mean() > 0.5 and size < 0.02 * largest(report.numeric):
        return Relation(
            "close, but not equal",
            "close, but not equal: has the backward another formula than the forward (the other form of "
            "gelu, another eps, n - 1 for n, a rounded constant)?"
        )
    return None


def _term_of_a_sum(off: np.ndarray, slack: np.ndarray, scalar: Scalar, terms: list[Term]) -> str:
    """Whether what is missing, or too much, is dy times a term of the formula."""
    for i, dy in enumerate(scalar.dy):
        for each in spread(dy, off.shape) if dy.ndim else ():
            name = "dy" if len(scalar.dy) == 1 else f"dy[{i}]"
            for term in (Term("", np.ones(off.shape)), *terms):
                if not term.name and dy.shape == off.shape:
                    continue
                made = each * term.value
                strongest = np.unravel_index(int(np.argmax(np.abs(made))), off.shape)
                times = float(off[strongest] / made[strongest]) if made[strongest] else 0.0
                plain = abs(round(2 * times) / 2)
                if not plain or abs(abs(times) - plain) > 1e-6 * plain or plain > 4:
                    continue
                if np.all(np.abs(off - times * made) <= (1 + plain) * slack):
                    how = "short" if times < 0 else "too large"
                    what = ("" if plain == 1 else f"{plain:g} ") + name + (f" * {term.name}" if term.name else "")
                    if plain in (2, 4):
                        return f"is {how} by {what}: a term with the wrong sign?"
                    return f"is {how} by {what}: a term of the sum that is {'left out' if times < 0 else 'too many'}"
    return ""


def _factor_of_each_row(report: ArgumentReport, slack: np.ndarray) -> Relation | None:
    """Whether each row has the right direction, and a length that no term explains."""
    claimed, right = report.analytic, report.numeric
    for axis in range(right.ndim - 1, -1, -1):
        if right.shape[axis] < 3 or not report.wrong.any(axis=axis).all():
            continue
        strongest = np.argmax(np.abs(right), axis=axis, keepdims=True)
        top = np.take_along_axis(right, strongest, axis)
        if np.any(top == 0):
            continue
        factor = np.take_along_axis(claimed, strongest, axis) / top
        if np.all(np.abs(claimed - factor * right) <= (1 + np.abs(factor)) * slack):
            return Relation(
                f"every row along axis {axis} by a factor of its own",
                f"every row along axis {axis} has the right direction and another length: is a factor that "
                "differs from row to row left out, such as one over its length or its sum, or applied twice?"
            )
    return None


def _shifted(report: ArgumentReport, slack: np.ndarray) -> str:
    """Whether each element stands one place beside its own, along one axis or several."""
    claimed, right, close = report.analytic, report.numeric, 4 * float(slack.max())
    axes = [axis for axis, n in enumerate(right.shape) if n > 2]
    for many in range(1, len(axes) + 1):
        for chosen in itertools.combinations(axes, many):
            later, earlier = ((slice(None),) * right.ndim for _ in range(2))
            later = tuple(slice(1, None) if axis in chosen else one for axis, one in enumerate(later))
            earlier = tuple(slice(None, -1) if axis in chosen else one for axis, one in enumerate(earlier))
            for ours, theirs in ((later, earlier), (earlier, later)):
                moved = right[theirs]
                if np.ptp(moved) > 100 * close and largest(claimed[ours] - moved) <= close:
                    which = f"axis {chosen[0]}" if many == 1 else f"axes {', '.join(map(str, chosen))}"
                    return f"shifted by one along {which}: an offset by one, a padding cut at the wrong side?"
    return ""


def _reordered(report: ArgumentReport, slack: np.ndarray) -> str:
    """Whether the right numbers stand in other places."""
    claimed, right, part = report.analytic, report.numeric, report.wrong
    close = float(slack.max()) * 4
    if part.sum() < 4 or largest(np.sort(claimed[part]) - np.sort(right[part])) > close:
        return ""
    for axis, n in enumerate(right.shape):
        if 2 < n and right.ndim > 1 and largest(np.sort(claimed, axis) - np.sort(right, axis)) <= close:
            return (
                f"the right numbers stand in the wrong places along axis {axis}: an order where its inverse belongs, "
                "or a reshape without its transpose?"
            )
    return "the right numbers stand in the wrong places: a reshape without its transpose?"
