"""Explains a wrong answer: the smallest example in numbers, the likely mistake, and the known mistake if it is one.

    not written yet                     what will be checked
    an answer that the guard refuses    the guard's message
    an exception                        with the line of the student's file           _explain_exception
    a wrong gradient                    in numbers, compared with differences         _explain_gradient
    anything else                       the message of the property that failed       _explain_property

The smallest example shows the numbers; a larger one, with sizes that all differ, shows their pattern.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.exercise import MAX_NUMBERS, WIDENED, Exercise, value_text, with_our_forward
from numpy_attention.catalogue.properties import OtherDtype
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.report import GradientError, Report
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.gradcheck.tolerance import random_cotangent
from numpy_attention.grade.guard import NotOwnWork
from numpy_attention.grade.page import page_of
from numpy_attention.grade.recognize import recognize

LIKELY = "likely mistake: "
MAX_ARGUMENTS = 4  # that are shown in numbers

Explanation = tuple[list[str], str]  # lines, and a summary in one line


@dataclass
class Failure:
    """The smallest example that fails: what was raised, and on which draw of an entry, if the property has entries.

    `right` is the entry with our own functions.
    """

    error: Exception
    seed: int
    sizes: Sizes | None = None
    entry: Entry | None = None
    right: Entry | None = None


def explain(exercise: Exercise, module: Any, subject: str, failure: Failure) -> tuple[str, list[str], str]:
    """State, lines and a summary in one line."""
    error = failure.error
    if isinstance(error, NotOwnWork):
        return "wrong", [str(error)], str(error)
    if isinstance(error, NotImplementedError):
        todo = f"not written yet{_place(error)}"
        return "to do", [todo, "", "What will be checked: " + page_of(exercise.name).claim], "not written yet"
    known = recognize(exercise, module, subject)
    if not isinstance(error, AssertionError):
        lines, summary = _explain_exception(failure)
    elif isinstance(error, GradientError) and error.report is not None and failure.entry is not None:
        lines, summary = _explain_gradient(failure, failure.entry, error.report)
        if known:  # no guess is needed
            lines = [line for line in lines if not line.startswith(LIKELY)]
    else:
        lines, summary = _explain_property(failure)
    lines += ["", "One of these known mistakes:"] if len(known) > 1 else []
    for mistake in known:
        name = f"`{mistake.name}`" if len(known) > 1 else f"A known mistake, `{mistake.name}`"
        lines += ["", f"{name}: {mistake.wrong}", f"How it hides: {mistake.hides}"]
        summary = f"known mistake `{mistake.name}`: {mistake.wrong}"
    if len(known) > 1:
        summary = f"one of the known mistakes {', '.join(f'`{mistake.name}`' for mistake in known)}"
    return "wrong" if isinstance(error, AssertionError) else "broken", lines, summary


def _explain_exception(failure: Failure) -> Explanation:
    """The function raised something: what, where, and on which inputs."""
    error = failure.error
    summary = f"stopped with {type(error).__name__}: {_first_line(error)}"
    unfit = "could not be broadcast" in summary
    lines = [summary + _place(error), *matmul_hints(summary, _place(error))]
    if unfit and _lacks_one_axis(summary):
        lines += ["The shapes differ by one axis that is missing: a sum, mean or max without keepdims=True?"]
    # If shapes do not fit, the shapes are shown and not the numbers.
    return lines + _example(failure, "The smallest example found on which it stops:", numbers=not unfit), summary


def _explain_gradient(failure: Failure, entry: Entry, report: Report) -> Explanation:
    """Both gradients in numbers, and the checker's report on a larger example."""
    lines = _example(failure)[1:]
    wrong = [one for one in report.arguments.values() if one.wrong.any() and one.analytic.size <= MAX_NUMBERS]
    for argument in wrong[:MAX_ARGUMENTS]:
        yours, differences = _distinguishable(argument.analytic, argument.numeric)
        lines += [f"  {argument.symbol}, yours:       {yours}", f"  {argument.symbol}, differences: {differences}"]
    other = _report_of_a_larger_example(entry, failure.right or entry)
    said = (other or str(failure.error)).splitlines()
    lines += ["", "On another draw, whose arrays are not shown:"] if other else [""]
    likely = [line for line in said if line.startswith(LIKELY)]
    return lines + said, likely[0] if likely else _first_line(failure.error)


def _explain_property(failure: Failure) -> Explanation:
    """The message of the property, and the example; without numbers for a wrong dtype, which they do not show."""
    error = failure.error
    lines = str(error).splitlines()
    if isinstance(error, OtherDtype) and error.widened:
        lines += [WIDENED]
    return lines + _example(failure, numbers=not isinstance(error, OtherDtype)), _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _place(error: Exception) -> str:
    """The line of the student's file, if the error comes from the other process."""
    return getattr(error, "place", "")


def matmul_hints(said: str, place: str) -> list[str]:
    """What to try where a product of matrices stops; `place` is the line of the file."""
    if "matmul" not in said:
        return []
    cures = ["The inner sizes of the product do not meet: is a transpose missing?"] if "core dimension" in said else []
    if ".T" in place:
        cures += ["`.T` turns all axes round, those of the batch too; swapaxes(-1, -2) turns the last two alone."]
    return cures


def _lacks_one_axis(message: str) -> bool:
    """Whether the first two shapes in a message differ by one missing axis."""
    shapes = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(r"\([\d, ]*\)", message)]
    if len(shapes) < 2:
        return False
    short, long = sorted(shapes[:2], key=len)
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _example(failure: Failure, words: str = "The smallest example found:", numbers: bool = True) -> list[str]:
    """The inputs of the smallest example, in numbers or by their shapes; nothing where there is none."""
    if failure.entry is None:
        return []

    def told(value: Any) -> str:
        return f"= {value_text(value)}" if numbers else f"of shape {np.shape(value)}"

    case = failure.entry.case(failure.seed, np.float64, failure.sizes)
    parameters = case.layer.parameters() if case.layer is not None else {}
    left_out = parameters if len(parameters) > MAX_ARGUMENTS else {}
    lines = [f"  {name} {told(value)}" for name, value in case.inputs.items() if name not in left_out]
    lines += [f"  and {len(left_out)} random parameters"] if left_out else []
    lines += [
        f"  {name} = {value!r}" for name, value in case.options.items() if not isinstance(value, np.random.Generator)
    ]
    try:
        with np.errstate(all="ignore"):
            y, _ = case.problem().run(case.inputs)
        lines += [f"  dy {told(one)}" for one in random_cotangent(y, failure.seed)]
    except Exception:  # the forward itself may raise
        pass
    return ["", words, *lines]


def _distinguishable(yours: np.ndarray, differences: np.ndarray) -> tuple[str, str]:
    """Both in numbers, with enough digits to see that they differ."""
    digits = next((n for n in range(4, 16, 2) if value_text(yours, n) != value_text(differences, n)), 16)
    return value_text(yours, digits), value_text(differences, digits)


def _report_of_a_larger_example(entry: Entry, right: Entry) -> str:
    """The checker's report on a draw with sizes that all differ."""
    for seed in range(8):
        try:
            with np.errstate(all="ignore"):
                check(with_our_forward(entry, right, seed, None), seed)
        except GradientError as error:
            if error.report is not None:
                return str(error)
        except Exception:  # the smallest example alone has to do
            return ""
    return ""
