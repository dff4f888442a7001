"""What the checker says, in one word, with the cause that it names and the arguments that it calls wrong."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

from numpy_attention.gradcheck import GradientError, Report


class Verdict(NamedTuple):
    """The state is one of these words:

    right         the check passes
    wrong         a gradient is wrong, or is not a gradient at all
    unresolved    the derivative is known to too few digits
    refused       a TypeError or ValueError: the checker cannot use the inputs
    crash         any other error
    """

    state: str
    diagnosis: str = ""
    arguments: tuple[str, ...] = ()
    message: str = ""  # the whole report
    calls: int = 0


def verdict(check: Callable[[], Report | None], loud: bool = False) -> Verdict:
    """Run a check and read its report or its error; with `loud`, a RuntimeWarning is a crash."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if loud:
            warnings.simplefilter("error", RuntimeWarning)
        try:
            report = check()
        except GradientError as error:
            return of_error(error)
        except (TypeError, ValueError) as error:
            return Verdict("refused", f"{type(error).__name__}: {error}", message=str(error))
        except Exception as error:
            return Verdict("crash", f"{type(error).__name__}: {error}", message=str(error))
    return Verdict("right", message=str(report or ""), calls=report.calls if report else 0)


def of_error(error: GradientError) -> Verdict:
    """The verdict in the error of a check."""
    message, report = str(error), error.report
    if report is None:  # the gradients are not compared: None, a wrong shape, NaN; or they are not robust
        return Verdict("wrong", message, message=message)
    names = tuple(one.name for one in report.wrong)
    if not names:
        return Verdict("unresolved", message, message=message, calls=report.calls)
    why_not = f"(no diagnosis) {report.why_not or ''}".strip()
    return Verdict("wrong", report.diagnosis or why_not, names, message, report.calls)
