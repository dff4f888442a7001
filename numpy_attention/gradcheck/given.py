"""Judge results without their function: arrays that a program in any language computed from known inputs.

    right      the results of a problem whose backward is right, at the same inputs and dy, in float64
    allowed    |given - right| <= 8 (round-off of the given dtype + the change when inputs move by a few last bits)
    why        rivals, relations between the arrays, steps of the forward with a wrong derivative, other calls

A rival is another result that equals the given one, such as that of a backward with a known mistake. Another call, with
another dy, without a mask or an option, explains the given gradients if they are its derivative. The program is never
called.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.gradcheck.compare import FEW_BITS, moved_by, rounding
from numpy_attention.gradcheck.derivative import Scalar, rms
from numpy_attention.gradcheck.problem import (
    Arrays,
    Gradients,
    Outputs,
    Problem,
    explain_shape,
    in_float64,
    is_float,
    largest,
)
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report, symbol_of
from numpy_attention.gradcheck.robust import by_symbol
from numpy_attention.gradcheck.why import Evidence, Experiment, diagnose, experiments
from numpy_attention.gradcheck.why.relations import place, relation, slack_of

# The round-off of one result, the smallest normal number, the dtype that we compute in, the moves in its last bits.
DTYPES = {
    "float32": (2.0**-23, 2.0**-126, np.float32, FEW_BITS), "float64": (2.0**-52, 2.0**-1022, np.float64, FEW_BITS),
    "float16": (2.0**-11, 2.0**-14, np.float32, (2**12,) * 6),
    "bfloat16": (2.0**-8, 2.0**-126, np.float32, (2**15,) * 6),
}
OTHER_FORMULA = "does the forward use another formula, another eps or random numbers?"
Rival = tuple[str, Callable[[], Arrays]]  # a sentence, and the results that it explains


class OutputReport(ArgumentReport):
    """The report of the output."""

    symbol = property(lambda self: self.name)


class Given(Evidence):
    """A failed comparison: the backward of the problem is right; of the wrong one only these gradients are known."""

    answers = False

    def gradients(self, dy: Outputs | None = None) -> Gradients:
        if dy is not None and dy is not self.scalar.dy:
            raise LookupError("no gradients are given for another dy")
        return {name: report.analytic for name, report in self.report.arguments.items()}

    def answer(self, problem: Problem, dy: Outputs, cache: Any) -> Gradients:
        return self.gradients()  # so `right_at` asks: are they the derivative of another call?

    def slack(self, v: Arrays) -> float:
        errors = [self.report.arguments[name].resolution * one for name, one in v.items()]
        return float(np.sqrt(sum(np.sum(one**2) for one in errors)))

    def experiments(self) -> list[Experiment]:
        return [experiments.other_dy, *super().experiments()]


def compare_given(
    problem: Problem, dy: Outputs, given: Arrays, dtypes: Mapping[str, str], known: Iterable[Rival] = ()
) -> Report:
    """Compare given results, called y, dq, dk, with those of a problem whose backward is right.

    `dtypes` names the dtype in which each array was computed; `known` are the results of known mistakes.

    Raises: GradientError with a report if an array is wrong; ValueError for an array that cannot be compared.
    """
    exact, arguments = in_float64(problem.inputs), {symbol_of(name): name for name in problem.with_gradient}
    right = results_at(problem, exact, dy)
    scalar = Scalar(problem.bind(exact), tuple(one for name, one in right.items() if name not in arguments), dy)
    nearby = {dtype: results_nearby(problem, exact, dy, dtype) for dtype in set(dtypes.values())}
    reports: dict[str, ArgumentReport] = {}
    for name, array in given.items():
        require_comparable(name, array, right[name])
        allowed = round_off(name, array, right, nearby[dtypes[name]], scalar, exact, dtypes[name])
        reports[name] = report_of(arguments.get(name), name, array, right[name], allowed)
    result = Report(problem.name, reports, 0, 0, notes=notes_on(right, reports, dtypes))
    if not result.wrong:
        return result
    # A cause must fit far better than the right results have to.
    sharp = {name: replace(one, resolution=one.resolution / 16) for name, one in reports.items()}
    wrong, mistakes = [one for one in sharp.values() if one.wrong.any()], list[str]()
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        mistakes = list(itertools.islice(equal(wrong, known), 3))  # several can have the same results
        result.diagnosis = "; or ".join(mistakes) or explained(problem, exact, scalar, sharp)
    for dtype in () if mistakes else ("float32", "bfloat16"):
        if all(one.wrong.mean() > 0.3 and typical_error(one) <= 2 * DTYPES[dtype][0] for one in wrong):
            result.notes.append(f"errors as of {dtype}: if the program computed in {dtype}, name this dtype")
            break
    raise GradientError(str(result), result)


def report_of(
    argument: str | None, name: str, given: np.ndarray, right: np.ndarray, allowed: np.ndarray
) -> ArgumentReport:
    """The report of one array: of the gradient of an argument, or of an output."""
    wrong, none = ~(np.abs(given - right) <= allowed), np.zeros(right.shape, dtype=bool)
    return (ArgumentReport if argument else OutputReport)(
        argument or name, given, right, allowed, 0.0 * allowed, wrong, none, none, none, size=largest(right) or 1.0,
        reference="float64", pattern=place(wrong, ~none) if wrong.any() else "",
    )


def notes_on(right: Arrays, reports: Mapping[str, ArgumentReport], dtypes: Mapping[str, str]) -> list[str]:
    """What the comparison cannot show: results that are not given, and arrays that could be zero."""
    absent = [name for name in right if name not in reports]
    notes = [f"not given: {', '.join(absent[:8])}{' ...' * (len(absent) > 8)}"] * bool(absent)
    rough = [name for name, one in reports.items() if np.mean(one.resolution >= np.abs(one.numeric)) > 0.5]
    if rough := [name for name in rough if np.any(reports[name].numeric)]:
        dtype = " and ".join(dict.fromkeys(dtypes[name] for name in rough))
        notes.append(f"{', '.join(rough)}: {dtype} cannot tell most elements from zero here; test it in float32")
    return notes


def typical_error(report: ArgumentReport) -> float:
    """The median error of an element, relative to the size of the array."""
    return float(np.median(np.abs(report.analytic - report.numeric))) / (rms(report.numeric) or 1.0)


def explained(problem: Problem, exact: Arrays, scalar: Scalar, reports: dict[str, ArgumentReport]) -> str:
    """The likely mistake; a wrong output comes before wrong gradients."""
    for one in reports.values():
        if isinstance(one, OutputReport) and one.wrong.any():
            evidence = Given(problem, {**exact, one.name: one.numeric}, scalar, Report(problem.name, reports, 0, 0))
            other = next(equal([one], other_forwards(problem, exact, scalar.dy)), OTHER_FORMULA)
            return f"{one.name}: {relation(one, evidence) or other}"
    gradients = {one.name: one for one in reports.values() if not isinstance(one, OutputReport)}
    evidence = Given(problem, exact, scalar, Report(problem.name, gradients, 0, 0))
    if evidence.right_at(exact):  # wrong by little more than round-off: everything would explain it
        evidence.most = 0
    return diagnose(evidence)


def other_forwards(problem: Problem, exact: Arrays, dy: Outputs) -> Iterator[Rival]:
    """The output without a mask, and without an option."""
    for name, x in exact.items():
        if isinstance(x, np.ndarray) and x.dtype == bool:
            yield f"{name} is not applied", partial(results_at, problem, {**exact, name: x | True}, dy)
    for name in problem.options:
        rest = problem.with_options({key: one for key, one in problem.options.items() if key != name})
        yield f"the option {name} is ignored", partial(results_at, rest, exact, dy)


def results_at(problem: Problem, arrays: Arrays, dy: Outputs) -> Arrays:
    """Outputs and gradients of one call with copies of its arguments."""
    y, cache = problem.run({name: x.copy() if isinstance(x, np.ndarray) else x for name, x in arrays.items()})
    return in_file(y, problem.pull_back(tuple(one.copy() for one in dy), cache))  # a mistake may change its arguments


def in_file(y: Outputs, grads: Gradients) -> Arrays:
    """Outputs and gradients by the names that files use: y (of several: y.0, y.1), dq, dk."""
    return {"y" if len(y) == 1 else f"y.{i}": one for i, one in enumerate(y)} | by_symbol(grads)


def require_comparable(name: str, array: np.ndarray, right: np.ndarray) -> None:
    """Refuse an array of a wrong shape, with NaN, or in column-major order."""
    if array.shape != right.shape:
        why = explain_shape(array.shape, right.shape)
        raise ValueError(f"{name} must have shape {right.shape}, got {array.shape}: {why}")
    with np.errstate(all="ignore"):
        swapped = array.astype(np.float32).byteswap().astype(np.float64) - right
    if largest(swapped) < 0.01 * largest(right):
        raise ValueError(f"{name} is in big-endian order: write its numbers little-endian")
    if not np.isfinite(array).all():
        at = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise ValueError(f"{name} holds {array[at]} at index {list(at)}, and {np.isfinite(array).sum()} finite numbers")
    by_columns = array.reshape(right.shape[::-1]).T
    if right.shape != right.shape[::-1] and largest(by_columns - right) < 0.01 * largest(array - right):
        raise ValueError(f"{name} is in column-major order: write it row by row (row-major)")


def results_nearby(problem: Problem, exact: Arrays, dy: Outputs, dtype: str) -> list[Arrays]:
    """The right results in this dtype at points nearby, where the inputs move by a few last bits."""
    _, _, work, bits = DTYPES[dtype]
    arrays = {name: x.astype(work) if is_float(x) else x for name, x in exact.items()}
    moves = moved_by(bits, problem.with_changes(inputs=arrays), arrays, tuple(one.astype(work) for one in dy))
    return [in_file(move.y, move.grads) for move in moves]


def round_off(
    name: str, given: np.ndarray, right: Arrays, nearby: list[Arrays], scalar: Scalar, exact: Arrays, dtype: str
) -> np.ndarray:
    """How far each element of a given result may be off in its dtype, at this point."""
    unit, least, *_ = DTYPES[dtype]
    sizes = {symbol_of(one): rms(x) or 1.0 for one, x in exact.items() if is_float(x)}
    half = unit > 1e-6  # programs in half precision add in float32, so the number of terms does not matter
    terms = 1.0 if half else max(n for x in exact.values() for n in (1, *np.shape(x))) ** 0.5
    # Terms that cancel leave round-off of their size.
    cancelled = max(1.0, *sizes.values()) * scalar.terms / min(1.0, sizes[name]) if name in sizes else 0.0
    size, most = largest(right[name]), max(map(largest, right.values()))
    cancelled = min(cancelled, 4 * size) if half else cancelled
    usual = unit * terms * (max(size, 0.02 * most, least) + 0.25 * cancelled)
    changes = [np.abs(np.asarray(other[name], np.float64) - right[name]) for other in nearby]
    # One wrong element of many cannot be told from round-off in half precision, or where the right gradient is zero.
    off = np.zeros(0) if half or size == 0 else np.abs(given - right[name])
    return rounding(np.asarray(off), usual, unit * size, changes)


def equal(wrong: list[ArgumentReport], rivals: Iterable[Rival]) -> Iterator[str]:
    """The sentences of rivals that equal all wrong arrays, and are much nearer to them than the right results."""

    def fits(report: ArgumentReport, rival: np.ndarray) -> bool:
        if np.any(rival) and not np.any(report.analytic):  # zeros have a sentence of their own
            return False
        off, times = np.abs(report.analytic - rival), max(1.0, largest(rival) / report.size)
        slack = times * slack_of(report, np.ones(off.shape, dtype=bool)).reshape(off.shape)
        return bool(np.all(off <= slack)) and largest(off) < 0.3 * largest(report.analytic - report.numeric)

    for words, results in rivals:
        with contextlib.suppress(Exception):  # a mistake may raise any error
            found = results()
            if all(fits(report, found[report.symbol]) for report in wrong):
                yield words
