"""Find the likely mistake: what changes the right gradient g into the analytic gradient c?

    relations      element by element, the simplest first:
        c = a g        a factor: -1 is a sign, 2 a term added twice, n a sum in place of a mean, sqrt(n) a scale
        part           is c wrong only in a part, and which relation holds there?
        c = f(g)       is c the right gradient transposed, shifted, reversed, averaged, or in another order?
        c - g          what is added to g: the same number for each row, a multiple of x or of the output?
    steps          with which wrong derivative of one step of the forward is the whole derivative equal to c?
    experiments    run the backward again with gamma all ones, without a mask, without an option:
                   with which of these is the backward right?
    places         which elements are wrong: only the last row, only the diagonal?

A relation counts only if it explains every element that was compared, and also the error in each element, however small
the error is: a relation that holds to 1e-6 does not explain an error of 1e-12.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.experiments import experiments, ignored_outputs
from numpy_attention.gradcheck.line import largest
from numpy_attention.gradcheck.places import at_one_value, place, place_in_words
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.terms import added, constant, factor_in_words, of_probabilities, slack_of
from numpy_attention.gradcheck.trees import Arrays

ZERO = 1e-13  # relative to the right gradient: the round-off of terms that cancel
NOISE = 1e-6  # relative to the right gradient: a smaller error without a known factor is probably noise
HIDDEN = "hidden or ignored elements still get a gradient"


def diagnose(evidence: Evidence) -> str:
    """Set the pattern of each wrong argument, the place of its wrong elements, and return the likely mistake."""
    for report in evidence.wrong:
        report.pattern = place(report.wrong, np.isfinite(report.numeric))
    if ties := [report.tie for report in evidence.wrong if report.tie]:
        return "; ".join(ties[:2])
    points = [at_one_value(report, evidence.arrays) for report in evidence.wrong]
    if all(points):
        return f"wrong only where {' and '.join(dict.fromkeys(points))}: does the backward treat this case separately?"
    if swapped := _exchanged(evidence):
        return swapped
    if len(evidence.scalar.dy) > 1:  # a backward that ignores an output looks as if it lacks a term
        ignored = "; ".join(ignored_outputs(evidence, [report.name for report in evidence.wrong]))
        if ignored:
            return ignored
    mistakes: dict[str, list[str]] = {}  # each mistake, and the gradients that have it
    unknown = []
    for report in evidence.wrong:
        if mistake := find(report, evidence):
            mistakes.setdefault(mistake, []).append(report.symbol)
        else:
            unknown.append(report)
    sentences = [f"{', '.join(symbols)}: {mistake}" for mistake, symbols in mistakes.items()]
    if unknown and (found := next(experiments(evidence), "")):
        only = [place_in_words(one, cause_known=True) for one in unknown if one.pattern.startswith("only")]
        sentences = [found, *only, *sentences]
    return "; ".join((sentences or list(map(place_in_words, evidence.wrong)))[:2])


def _exchanged(evidence: Evidence) -> str:
    """The mistake, if each of two wrong gradients is the right gradient of the other argument."""
    for one, other in itertools.combinations(evidence.wrong, 2):
        if other.fits(one.analytic) and one.fits(other.analytic):
            return f"{one.symbol} and {other.symbol} are exchanged: each holds the other's gradient"
    return ""


@np.errstate(all="ignore")
def find(report: ArgumentReport, evidence: Evidence) -> str:
    """The first mistake that explains all compared elements, or an empty text without such a mistake."""
    scalar, arrays, seen = evidence.scalar, evidence.arrays, np.isfinite(report.numeric)
    if not seen.any() or not report.wrong.any():
        return ""
    if largest(report.analytic[seen]) <= ZERO * largest(report.numeric[seen]):
        return "the backward returns zero: is a term missing, or do two terms cancel?"
    slack, right = slack_of(report, seen), report.numeric[seen]
    enough = np.count_nonzero(np.abs(right) > 100 * slack) >= 2
    if enough and (factor := constant(report, seen)):
        return factor_in_words(factor, evidence)[0]
    if report.analytic.size == 1 and abs(float(right[0])) > 100 * float(slack[0]):
        factor = float(report.analytic[seen][0] / right[0])
        mistake, known = factor_in_words(factor, evidence)
        return mistake if known else ""  # between two numbers there is always a factor
    if seen.all() and enough:
        if mistake := of_probabilities(report, arrays[report.name]):
            return mistake
        outputs = [("y" if len(scalar.y) == 1 else f"y[{i}]", y) for i, y in enumerate(scalar.y)]
        for mistake, candidate in _candidates(report.numeric, [*arrays.items(), *outputs]):
            if np.all(np.abs(candidate.reshape(-1) - report.analytic[seen]) <= slack):
                return mistake
    off = np.abs(report.analytic[seen] - right)
    error = largest(off) / largest(right)
    if error < NOISE and np.median(off[right != 0]) > 1e-3 * largest(off):
        if evidence.smooth(report.name):
            return (
                f"right to {error:.0e}, and the error depends smoothly on {report.name}: does only one of forward and "
                "backward have a small constant (1e-10 in a log, an eps), or is a constant rounded to too few digits?"
            )
        return (
            f"right to {error:.0e}, and the error follows no rule: is it noise, from an iteration that stops at a "
            f"tolerance or from large terms that cancel? Then allow this error: rtol={10 * error:.0e}"
        )
    hidden = _hidden(report, arrays) if seen.all() else ""
    if hidden or not seen.all() or not enough:
        return hidden
    if mistake := added(report, scalar, arrays, slack.reshape(report.shape)):
        return mistake
    found = report.pattern
    inside = _of_wrong_elements(report, evidence) if found.startswith(("only", "the diagonal")) else ""
    part = found.removeprefix("only ") if "diagonal" in found else f"in {found.removeprefix('only ')}"
    return f"wrong only {part}, and there {inside}" if inside else ""


def _hidden(report: ArgumentReport, arrays: Arrays) -> str:
    """The mistake, if a gradient is wrong only where it must be zero; else ""."""
    part = report.wrong
    if part.all() or not np.all(np.abs(report.numeric[part]) <= slack_of(report, part)):
        return ""
    masks = [name for name, value in arrays.items() if value.dtype == bool]
    if part.sum() == 1 and not masks:
        index = ", ".join(map(str, report.worst))
        return f"right except for element [{index}], which must be zero: check the indexing there"
    fits = [name for name in masks if arrays[name].shape == part.shape and not (arrays[name] & part).any()]
    what = f"it leaks through elements that {(fits or masks)[0]} hides" if masks else HIDDEN
    return f"wrong only where the gradient must be zero: {what}"


def _of_wrong_elements(report: ArgumentReport, evidence: Evidence) -> str:
    """The mistake in the wrong elements alone; "" if no relation explains them."""
    part = report.wrong
    analytic, right, slack = report.analytic[part], report.numeric[part], slack_of(report, part)
    if np.all(np.abs(right) <= slack):
        return f"the gradient must be zero: {HIDDEN}"
    if not np.any(analytic):
        return "the backward returns zero: is this part of the gradient never computed?"
    factor = constant(report, part) if part.sum() > 1 else 0.0
    return factor_in_words(factor, evidence)[0] if factor else ""


def _candidates(right: np.ndarray, known: list[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """Typical wrong gradients, computed from the right gradient, and from factors that fit its shape."""
    for name, z in known:
        fits = 0 < z.ndim <= right.ndim and all(n in (1, m) for n, m in zip(z.shape[::-1], right.shape[::-1]))
        for factor, one in ((name, z), (f"exp({name})", np.exp(z))) if fits and z.dtype.kind == "f" else ():
            yield f"the factor {factor} is applied once too often", right * one
            yield f"the factor {factor} is left out", right / one
    yield "the absolute value of the right gradient: is a sign lost in an abs, a square or a root?", np.abs(right)
    for i, j in itertools.combinations(range(right.ndim), 2):
        if right.shape[i] == right.shape[j] > 1:
            yield f"transposed (axes {i} and {j})", right.swapaxes(i, j)
    for axis, n in enumerate(right.shape):
        if n > 2:
            yield f"reversed along axis {axis}", np.flip(right, axis)
        if n > 1:
            averaged = np.broadcast_to(right.mean(axis, keepdims=True), right.shape)
            yield f"averaged over axis {axis}: each element must keep its own value", averaged
