"""Explain a wrong answer: the smallest example in numbers, and the known mistake or the likely mistake.

    not written yet                     a list of the checks
    an answer that the guard refuses    the guard's message
    an exception                        the message and the line of the student's file      _explain_exception
    a wrong gradient                    the gradient in numbers, and numerical differences  _explain_gradient
    anything else                       the message of the property that failed             _explain_property

The smallest example shows the numbers. A larger example, with sizes that all differ, shows the pattern of the error.
"""

import contextlib
import inspect
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import random_cotangent
from numpy_attention.gradcheck.report import GradientError, Report
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.answer import Exit, message_of
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.exercise import LIKELY, MAX_NUMBERS, WIDENED, Exercise, shown, shown_beside, with_our_forward
from numpy_attention.tutor.guard import NotOwnWork
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.page import exercise_texts
from numpy_attention.tutor.properties import OtherDtype
from numpy_attention.tutor.recognize import recognize, recognize_change, recognize_two

# A diagnosis that names a step of the student's forward, a factor or a sign is right; the others are guesses.
EXACT = re.compile(r"\(line |once too often|is left out|sign is wrong|exchanged|divi(ded|sion) by")
MAX_ARGUMENTS = 4  # limit of the arguments that are shown in numbers

Explanation = tuple[list[str], str]  # the lines, and a summary in one line


@dataclass
class Failure:
    """The smallest example that fails: the exception, and the random seed, sizes and entry that give this example.

    `entry` has the student's functions, `right` has our own functions. A trial has neither, and no sizes.
    """

    error: Exception
    seed: int
    sizes: Sizes | None = None
    entry: Entry | None = None
    right: Entry | None = None


def explain(exercise: Exercise, module: Any, subject: str, failure: Failure) -> tuple[str, list[str], str]:
    """The state, the lines, and a summary in one line."""
    error = failure.error
    if isinstance(error, NotOwnWork):
        return "wrong", [str(error)], str(error)
    if isinstance(error, NotImplementedError):
        todo = f"not written yet{place_of(error)}"
        checked = exercise_texts()[exercise.name].checked
        return "to do", [todo, "", f"What will be checked: {checked}"], "not written yet"
    known = recognize(exercise, module, subject)
    failed = isinstance(error, AssertionError)  # else an exception: the message says more than a search
    told = "in place" in str(error)  # the message names the mistake: an array was changed, or was not changed
    changes = recognize_change(exercise, module, subject) if failed and not known and not told else []
    two = [] if known or changes or subject in exercise.quizzes else recognize_two(exercise, module, subject)
    explained = bool(known) or len(two) > 1  # then a likely mistake is not needed
    if not failed:
        lines, summary = _explain_exception(failure)
    elif isinstance(error, GradientError) and error.report is not None and failure.entry is not None:
        entries = [one.entry(module) for one in exercise.tries if one.name == subject]
        lines, summary = _explain_gradient(failure, failure.entry, error.report, entries, not explained)
    else:
        lines, summary = _explain_property(failure)
    likely = [line for line in lines if line.startswith(LIKELY)]
    lines = [line for line in lines if not line.startswith(LIKELY)]
    if changes:
        likely = [line for line in likely if EXACT.search(line)]
        named, names = _changes(changes), "; ".join(changes)
    else:
        named, names = _known_mistakes(known) if known else _two_mistakes(two)
    named = [*([] if explained or not likely else [*likely, ""]), *named]
    return "wrong" if failed else "broken", [*named, *lines], names or summary


def _known_mistakes(known: list[Mistake]) -> Explanation:
    """The known mistake of an answer; several, if their results are the same."""
    if len(known) == 1:
        mistake = known[0]
        return _mistake(f"This is a known mistake, `{mistake.name}`", mistake), _summary(mistake)
    lines = ["This is one of these known mistakes:", ""]
    for mistake in known:
        lines += _mistake(f"`{mistake.name}`", mistake)
    return lines, f"one of the known mistakes {', '.join(f'`{mistake.name}`' for mistake in known)}"


def _two_mistakes(two: list[tuple[list[str], Mistake | str]]) -> Explanation:
    """Two mistakes of one answer, one after the other, each with the cases that show it."""
    lines: list[str] = ["These are two mistakes."] if len(two) > 1 else []
    for cases, mistake in two:
        where = f"In the case{'s' * (len(cases) > 1)} {' and '.join(f'`{case}`' for case in cases)}"
        if isinstance(mistake, str):
            lines += [f"{where} there is also a second mistake. {mistake}", ""]
        else:
            lines += _mistake(f"{where}, a known mistake, `{mistake.name}`", mistake)
    return lines, "; ".join(_summary(mistake) for _, mistake in two)


def _changes(changes: list[str]) -> list[str]:
    """The changes of a right solution that give the numbers of the answer."""
    if len(changes) == 1:
        return [f"A right solution with one change gives the same numbers: {changes[0]}.", ""]
    head = f"A right solution with {len(changes)} changes gives the same numbers:"
    return [head, *(f"({i}) {words}." for i, words in enumerate(changes, 1)), ""]


def _mistake(head: str, mistake: Mistake) -> list[str]:
    return [f"{head}: {mistake.wrong}", f"How it hides: {mistake.hides}", ""]


def _summary(mistake: Mistake | str) -> str:
    return mistake if isinstance(mistake, str) else f"known mistake `{mistake.name}`: {mistake.wrong}"


def _explain_exception(failure: Failure) -> Explanation:
    """The function raised an exception: the message, the line, and the inputs."""
    error = failure.error
    summary = f"stopped with {'exit' if isinstance(error, Exit) else type(error).__name__}: {_first_line(error)}"
    unfit = "could not be broadcast" in summary
    lines = [summary + place_of(error), *shape_hints(error)]
    if unfit and _lacks_one_axis(summary):
        lines += ["One of the shapes lacks an axis: is there a sum, mean or max without keepdims=True?"]
    # If shapes do not match, the shapes are shown instead of the numbers.
    return lines + _example(failure, "The smallest example found that raises this error", numbers=not unfit), summary


def _explain_gradient(
    failure: Failure, entry: Entry, report: Report, entries: list[Entry], diagnosis: bool
) -> Explanation:
    """Both gradients in numbers, and the checker's report for a larger example."""
    lines = _example(failure)[1:]
    wrong = [one for one in report.arguments.values() if one.wrong.any() and one.analytic.size <= MAX_NUMBERS]
    for argument in wrong[:MAX_ARGUMENTS]:
        yours, differences = f"{argument.symbol}, yours:      ", f"{argument.symbol}, differences:"
        lines += shown_beside(yours, argument.analytic, differences, argument.numeric)
    other = _report_of_a_larger_example(entries, diagnosis)
    said = (other or _full_report(failure, entry)).splitlines()
    # Without what concerns the checker or the forward, not the answer.
    said = [re.sub(r" +resolution .*", "", line) for line in said]
    said = [line for line in said if not re.match(r"compared with differences|second opinion|\d+ calls of", line)]
    lines += ["", "For another, larger example (its arrays are not shown):"] if other else [""]
    likely = [line for line in said if line.startswith(LIKELY)]
    return lines + said, likely[0] if likely else _first_line(failure.error)


def _full_report(failure: Failure, entry: Entry) -> str:
    """The checker's report for the smallest example, with a diagnosis."""
    try:
        with np.errstate(all="ignore"):
            check(with_our_forward(entry, failure.right or entry, failure.seed, failure.sizes), failure.seed)
    except GradientError as error:
        return str(error)
    return str(failure.error)


def _explain_property(failure: Failure) -> Explanation:
    """The message of the property, and the example; without numbers for a wrong dtype: numbers do not show a dtype."""
    error = failure.error
    lines = message_of(error).splitlines()
    if isinstance(error, OtherDtype) and error.widened:
        lines += [WIDENED]
    return lines + _example(failure, numbers=not isinstance(error, OtherDtype)), _first_line(error)


def _first_line(error: Exception) -> str:
    return (message_of(error) or type(error).__name__).splitlines()[0]


def place_of(error: Exception) -> str:
    """The line of the student's file, if the student's function raised the error."""
    return getattr(error, "place", "")


def shape_hints(error: Exception) -> list[str]:
    """Advice for a product, a sum or another call whose arrays do not fit."""
    text, hints = str(error), list[str]()
    if "core dimension" in text:
        hints += ["The inner sizes of the product are not equal: is a transpose, or keepdims=True, missing?"]
    if ("matmul" in text or "broadcast" in text) and ".T" in place_of(error):
        hints += ["`.T` reverses all axes, also the batch axes; swapaxes(-1, -2) exchanges only the last two axes."]
    if "1- or 2-d" in text:
        hints += ["np.diag takes one vector or one matrix, but here an array can have more axes, for example a batch."]
    if "einstein sum" in text:
        hints += ["einsum does not sum over `...`: if the input has `...`, the output needs it too; sum afterwards."]
    return hints


def _lacks_one_axis(message: str) -> bool:
    """Whether one of the first two shapes in a message equals the other shape without one axis."""
    shapes = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(r"\([\d, ]*\)", message)]
    if len(shapes) < 2:
        return False
    short, long = sorted(shapes[:2], key=len)
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _example(failure: Failure, title: str = "The smallest example found", numbers: bool = True) -> list[str]:
    """The inputs of the smallest example, as numbers or as shapes; an empty list if there is no example."""
    if failure.entry is None:
        return []
    case, arrays = failure.entry.case(failure.seed, np.float64, failure.sizes), _arrays(failure, failure.entry)
    front = _axes_of_one(arrays) if numbers else 0
    parameters = case.layer.parameters() if case.layer is not None else {}
    left_out = parameters if len(parameters) > MAX_ARGUMENTS else {}
    title += f" (without {'the first axis' if front == 1 else f'the first {front} axes'}, of length 1)" * (front > 0)
    lines = ["", f"{title}:"]
    for name, value in arrays.items():
        if name not in left_out:
            lines += shown(name, _without(front, value)) if numbers else [f"  {name} of shape {np.shape(value)}"]
    lines += [f"  and {len(left_out)} random parameters"] if left_out else []
    return lines + [
        f"  {name} = {value!r}" for name, value in case.options.items() if not isinstance(value, np.random.Generator)
    ]


def _arrays(failure: Failure, entry: Entry) -> dict[str, Any]:
    """The inputs of the smallest example, and dy if the forward runs."""
    case = entry.case(failure.seed, np.float64, failure.sizes)
    arrays: dict[str, Any] = dict(case.inputs)
    with contextlib.suppress(Exception), np.errstate(all="ignore"):  # the student's forward may raise any error
        dys = random_cotangent(case.problem().run(case.inputs)[0], failure.seed)
        name = next(iter(inspect.signature(entry.op_backward).parameters)) if entry.op_backward else "dy"
        arrays |= {name if len(dys) == 1 else f"{name} of output {i}": dy for i, dy in enumerate(dys)}
    return arrays


def _axes_of_one(arrays: dict[str, Any]) -> int:
    """How many first axes of all arrays with more than two axes have length 1; the last two axes are always shown."""
    shapes = [shape for shape in map(np.shape, arrays.values()) if len(shape) > 2]
    return min((next((i for i, n in enumerate(shape[:-2]) if n != 1), len(shape) - 2) for shape in shapes), default=0)


def _without(front: int, value: Any) -> Any:
    """An array with more than two axes without its first axes."""
    return value[(0,) * front] if np.ndim(value) > 2 else value


def _report_of_a_larger_example(entries: list[Entry], diagnosis: bool) -> str:
    """The checker's report for a draw with sizes that all differ and are larger than 1; first the case with most axes.

    The checker uses the student's own forward, so it can name a line of the student's file.
    """
    for entry in sorted(entries, key=lambda one: -len(one.sizes(np.random.default_rng(0)))):
        for seed in range(6):
            sizes = entry.sizes(np.random.default_rng(seed))
            if any(size in (1, ()) for name, size in sizes.items() if name not in entry.fixed):  # shows no pattern
                continue
            try:
                with np.errstate(all="ignore"):
                    check(entry.case(seed, np.float64, sizes).problem(), seed, explain=diagnosis)
            except GradientError as error:
                if error.report is not None:
                    return str(error)
            except Exception:  # then only the smallest example is shown
                return ""
    return ""
