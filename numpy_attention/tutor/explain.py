"""Explain a wrong answer: the smallest example in numbers, and the known mistake or the likely mistake.

    not written yet                     a list of the checks
    an answer that the guard refuses    the guard's message
    an exception                        the message and the line of the student's file      _explain_exception
    a wrong gradient                    the gradient in numbers, and numerical differences  _explain_gradient
    anything else                       the message of the property that failed             _explain_property

The smallest example shows the numbers. A larger example, with sizes that all differ, shows the pattern of the error.
"""

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
from numpy_attention.tutor.exercise import MAX_NUMBERS, WIDENED, Exercise, value_text, with_our_forward
from numpy_attention.tutor.guard import NotOwnWork
from numpy_attention.tutor.page import exercise_texts
from numpy_attention.tutor.properties import OtherDtype
from numpy_attention.tutor.recognize import recognize

LIKELY = "likely mistake: "
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
    if not isinstance(error, AssertionError):
        lines, summary = _explain_exception(failure)
    elif isinstance(error, GradientError) and error.report is not None and failure.entry is not None:
        lines, summary = _explain_gradient(failure, failure.entry, error.report)
        if known:  # then the likely mistake is not needed
            lines = [line for line in lines if not line.startswith(LIKELY)]
    else:
        lines, summary = _explain_property(failure)
    lines += ["", "This is one of these known mistakes:"] if len(known) > 1 else []
    for mistake in known:
        name = f"`{mistake.name}`" if len(known) > 1 else f"This is a known mistake, `{mistake.name}`"
        lines += ["", f"{name}: {mistake.wrong}", f"How it hides: {mistake.hides}"]
        summary = f"known mistake `{mistake.name}`: {mistake.wrong}"
    if len(known) > 1:
        summary = f"one of the known mistakes {', '.join(f'`{mistake.name}`' for mistake in known)}"
    return "wrong" if isinstance(error, AssertionError) else "broken", lines, summary


def _explain_exception(failure: Failure) -> Explanation:
    """The function raised an exception: the message, the line, and the inputs."""
    error = failure.error
    summary = f"stopped with {'exit' if isinstance(error, Exit) else type(error).__name__}: {_first_line(error)}"
    unfit = "could not be broadcast" in summary
    lines = [summary + place_of(error), *matmul_hints(error)]
    if unfit and _lacks_one_axis(summary):
        lines += ["One of the shapes lacks an axis: is there a sum, mean or max without keepdims=True?"]
    # If shapes do not match, the shapes are shown instead of the numbers.
    return lines + _example(failure, "The smallest example found that raises this error:", numbers=not unfit), summary


def _explain_gradient(failure: Failure, entry: Entry, report: Report) -> Explanation:
    """Both gradients in numbers, and the checker's report for a larger example."""
    lines = _example(failure)[1:]
    wrong = [one for one in report.arguments.values() if one.wrong.any() and one.analytic.size <= MAX_NUMBERS]
    for argument in wrong[:MAX_ARGUMENTS]:
        yours, differences = _distinguishable(argument.analytic, argument.numeric)
        lines += [f"  {argument.symbol}, yours:       {yours}", f"  {argument.symbol}, differences: {differences}"]
    other = _report_of_a_larger_example(entry, failure.right or entry)
    said = (other or str(failure.error)).splitlines()
    lines += ["", "For another, larger example (its arrays are not shown):"] if other else [""]
    likely = [line for line in said if line.startswith(LIKELY)]
    return lines + said, likely[0] if likely else _first_line(failure.error)


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


def matmul_hints(error: Exception) -> list[str]:
    """Advice for a matrix product that raises an error."""
    if "matmul" not in str(error):
        return []
    hints = []
    if "core dimension" in str(error):
        hints += ["The inner sizes of the product are not equal: is a transpose missing?"]
    if ".T" in place_of(error):
        hints += ["`.T` reverses all axes, also the batch axes; swapaxes(-1, -2) exchanges only the last two axes."]
    return hints


def _lacks_one_axis(message: str) -> bool:
    """Whether one of the first two shapes in a message equals the other shape without one axis."""
    shapes = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(r"\([\d, ]*\)", message)]
    if len(shapes) < 2:
        return False
    short, long = sorted(shapes[:2], key=len)
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _example(failure: Failure, title: str = "The smallest example found:", numbers: bool = True) -> list[str]:
    """The inputs of the smallest example, as numbers or as shapes; an empty list if there is no example."""
    if failure.entry is None:
        return []

    def described(value: Any) -> str:
        return f"= {value_text(value)}" if numbers else f"of shape {np.shape(value)}"

    case = failure.entry.case(failure.seed, np.float64, failure.sizes)
    parameters = case.layer.parameters() if case.layer is not None else {}
    left_out = parameters if len(parameters) > MAX_ARGUMENTS else {}
    lines = [f"  {name} {described(value)}" for name, value in case.inputs.items() if name not in left_out]
    lines += [f"  and {len(left_out)} random parameters"] if left_out else []
    lines += [
        f"  {name} = {value!r}" for name, value in case.options.items() if not isinstance(value, np.random.Generator)
    ]
    try:
        with np.errstate(all="ignore"):
            y, _ = case.problem().run(case.inputs)
        lines += [f"  dy {described(one)}" for one in random_cotangent(y, failure.seed)]
    except Exception:  # the forward itself may raise
        pass
    return ["", title, *lines]


def _distinguishable(yours: np.ndarray, differences: np.ndarray) -> tuple[str, str]:
    """Both arrays as text, with enough digits to show a difference."""
    digits = next((n for n in range(4, 16, 2) if value_text(yours, n) != value_text(differences, n)), 16)
    return value_text(yours, digits), value_text(differences, digits)


def _report_of_a_larger_example(entry: Entry, right: Entry) -> str:
    """The checker's report for a draw with sizes that all differ."""
    for seed in range(8):
        sizes = entry.sizes(np.random.default_rng(seed))
        if any(size == 1 for name, size in sizes.items() if name not in entry.fixed):  # shows no pattern
            continue
        try:
            with np.errstate(all="ignore"):
                check(with_our_forward(entry, right, seed, None), seed)
        except GradientError as error:
            if error.report is not None:
                return str(error)
        except Exception:  # then only the smallest example is shown
            return ""
    return ""
