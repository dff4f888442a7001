"""What a tutor says to a wrong answer: the smallest example in numbers, the likely mistake, and who made it before.

Three kinds of failure: not written yet, which is no mistake; a stop, with the student's own line; a wrong result. The
smallest example shows the numbers best, a larger one with sizes all different the pattern behind them.
"""

import re
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.exercise import SHOWN, WIDENED, Exercise, beside, shown
from numpy_attention.catalogue.properties import OtherDtype
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.claims import random_cotangent
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.exercises import CLAIMS
from numpy_attention.grade.guard import NotYours
from numpy_attention.grade.recognize import recognize
from numpy_attention.grade.stopped import Stopped

LIKELY = "likely mistake: "
MOST_ARGUMENTS = 4  # of a block's many parameters no more are shown


def explain(
    exercise: Exercise, module: Any, subject: str, error: BaseException, entry: Entry | None, seed: int,
    sizes: Sizes | None, right: Entry | None = None
) -> tuple[str, list[str], str]:
    """State, lines and a summary in one line; `right` is the entry with our own functions."""
    if isinstance(error, NotYours):
        return "wrong", [str(error)], str(error)
    place = where(error, module)
    if isinstance(error, NotImplementedError):
        todo = f"not written yet{place}"
        return "to do", [todo, "", "What will be checked: " + CLAIMS[exercise.name][1]], "not written yet"
    lines: list[str] = []
    known = recognize(exercise, module, subject)
    report = error.report if isinstance(error, GradientError) else None
    summary = str(error).splitlines()[0] if str(error) else type(error).__name__
    if not isinstance(error, AssertionError):
        summary = f"stopped with {type(error).__name__}: {summary}"
        lines += [summary + place]
        lines += matmul_cures(summary, place)
        unfit = "could not be broadcast" in summary
        if unfit and _lacks_one_axis(summary):
            lines += ["The shapes differ by one axis that is missing: a sum, mean or max without keepdims=True?"]
        if entry is not None:
            # Where shapes do not fit, no number is to blame.
            inputs = _inputs(entry, seed, sizes, numbers=not unfit)
            lines += ["", "The smallest example found on which it stops:", *inputs]
    elif report is not None and entry is not None:
        lines += ["The smallest example found:", *_inputs(entry, seed, sizes)]
        wrong = [one for one in report.arguments.values() if one.wrong.any() and one.analytic.size <= SHOWN]
        for argument in wrong[:MOST_ARGUMENTS]:
            yours, differences = _told_apart(argument.analytic, argument.numeric)
            lines += [f"  {argument.symbol}, yours:       {yours}", f"  {argument.symbol}, differences: {differences}"]
        other = _report_of_a_larger_example(entry, right or entry)
        said = other or str(error)
        lines += ["", "On another draw, whose arrays are not shown:"] if other else [""]
        # Where the mistake is known, nobody need guess.
        lines += [*(line for line in said.splitlines() if not (known and line.startswith(LIKELY)))]
        summary = _likely_mistake(said) or summary
    else:
        lines += str(error).splitlines()
        if isinstance(error, OtherDtype) and error.widened:
            lines += [WIDENED]
        if entry is not None:
            # No dtype can be seen in numbers.
            inputs = _inputs(entry, seed, sizes, numbers=not isinstance(error, OtherDtype))
            lines += ["", "The smallest example found:", *inputs]
    lines += ["", "One of these known mistakes:"] if len(known) > 1 else []
    for mistake in known:
        name = f"`{mistake.name}`" if len(known) > 1 else f"A known mistake, `{mistake.name}`"
        lines += ["", f"{name}: {mistake.wrong}", f"How it hides: {mistake.hides}"]
        summary = f"known mistake `{mistake.name}`: {mistake.wrong}"
    if len(known) > 1:
        summary = f"one of the known mistakes {', '.join(f'`{mistake.name}`' for mistake in known)}"
    return "wrong" if isinstance(error, AssertionError) else "broken", lines, summary


def where(error: BaseException, module: Any) -> str:
    """The innermost line of the student's own file; an error from another process brings it along."""
    if isinstance(error, Stopped):
        return error.place
    file = getattr(module, "__file__", None)
    at = _frame(error.__traceback__, file) if file else None
    return f" ({Path(file).name}, line {at.lineno}: {at.line})" if at and file else ""


def matmul_cures(said: str, place: str) -> list[str]:
    """What to try where a product of matrices stops; `place` is the line of the file."""
    if "matmul" not in said:
        return []
    cures = ["The inner sizes of the product do not meet: is a transpose missing?"] if "core dimension" in said else []
    if ".T" in place:
        cures += ["`.T` turns all axes round, those of the batch too; swapaxes(-1, -2) turns the last two alone."]
    return cures


def _frame(trace: TracebackType | None, file: str) -> traceback.FrameSummary | None:
    own = [frame for frame in traceback.extract_tb(trace) if frame.filename == file]
    return own[-1] if own else None


def _lacks_one_axis(message: str) -> bool:
    """Whether the first two shapes of a message are the same but for one axis that one of them lacks."""
    shapes = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(r"\([\d, ]*\)", message)]
    if len(shapes) < 2:
        return False
    short, long = sorted(shapes[:2], key=len)
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _inputs(entry: Entry, seed: int, sizes: Sizes | None, numbers: bool = True) -> list[str]:
    def told(value: Any) -> str:
        return f"= {shown(value)}" if numbers else f"of shape {np.shape(value)}"

    case = entry.case(seed, np.float64, sizes)
    parameters = case.layer.parameters() if case.layer is not None else {}
    left_out = parameters if len(parameters) > MOST_ARGUMENTS else {}
    lines = [f"  {name} {told(value)}" for name, value in case.inputs.items() if name not in left_out]
    lines += [f"  and {len(left_out)} random parameters"] if left_out else []
    lines += [
        f"  {name} = {value!r}" for name, value in case.options.items() if not isinstance(value, np.random.Generator)
    ]
    try:
        with np.errstate(all="ignore"):
            y, _ = case.problem().run(case.inputs)
        lines += [f"  dy {told(one)}" for one in random_cotangent(y, seed)]
    except Exception:  # the forward itself may be what stops
        pass
    return lines


def _told_apart(yours: np.ndarray, differences: np.ndarray) -> tuple[str, str]:
    """Both in numbers, with as many digits as it takes to see that they differ."""
    digits = next((n for n in range(4, 16, 2) if shown(yours, n) != shown(differences, n)), 16)
    return shown(yours, digits), shown(differences, digits)


def _report_of_a_larger_example(entry: Entry, right: Entry) -> str:
    """What the checker says of a draw with sizes all different."""
    for seed in range(8):
        try:
            with np.errstate(all="ignore"):
                check(beside(entry, right, seed, None), seed)
        except GradientError as error:
            if error.report is not None:
                return str(error)
        except Exception:  # then the smallest example is all there is to say
            return ""
    return ""


def _likely_mistake(report: str) -> str:
    found = [line for line in report.splitlines() if line.startswith(LIKELY)]
    return found[0] if found else ""
