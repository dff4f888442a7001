"""A student's functions: an exception of them names its line, and what they print is kept."""

import functools
import inspect
import io
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from numpy_attention.errors import escaped
from numpy_attention.grade.guard import NotOwnWork

METHODS = ("__init__", "forward", "backward", "step")
MAX_STORED = 1 << 14  # characters of printed text that are kept
MAX_LINES, MAX_WIDTH, MAX_TEXT = 12, 200, 2000  # printed lines that are shown, characters of a line, of a message
NO_LIMIT: AbstractContextManager[None] = nullcontext()
KINDS = (  # base classes of exceptions that the tutor or the checker distinguishes
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, OSError,
    RuntimeError, TypeError, ValueError, Exception,
)


def with_place(made: Any, file: Path, limit: AbstractContextManager[None] = NO_LIMIT, name: str = "") -> Any:
    """The function, or the class with its methods; an exception also has the line of the student's file.

    `limit` is entered for each call. `name` replaces the name of the file in the texts.
    """
    if isinstance(made, type):
        methods = {method: getattr(made, method, None) for method in METHODS}
        placed = {key: with_place(f, file, limit, name) for key, f in methods.items() if inspect.isfunction(f)}
        return type(made.__name__, (made,), placed)

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with limit:
                return made(*args, **kwargs)
        except NotOwnWork:
            raise
        except (Exception, SystemExit) as error:
            raise _placed_error(error, file, name or file.name) from None

    return call


def _placed_error(error: BaseException, file: Path, name: str) -> Exception:
    """An exception with the same name, a base class of KINDS, and a short message that can be printed.

    Its attribute `place` is the line of the file.
    """
    message, (line, text) = message_of(error), place(error, file)
    base = next((kind for kind in KINDS if isinstance(error, kind)), Exception)
    parts = {"__str__": lambda _: message, "place": f" ({name}, line {line}: {text})" if line else ""}
    made: Exception = type(type(error).__name__, (base,), parts)(message)
    return made


def place(error: BaseException, file: Path) -> tuple[int, str]:
    """The number and the text of the innermost line of the student's own file; 0 if there is none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return ((own[-1].lineno or 0), escaped((own[-1].line or "")[:200])) if own else (0, "")


def message_of(error: BaseException) -> str:
    """The first MAX_TEXT characters of the message of an exception, with escapes for unprintable characters."""
    try:
        return escaped(str(error)[:MAX_TEXT])
    except Exception:
        return "(its message cannot be shown)"


class Printed(io.TextIOBase):
    """Passes on only the first characters, because a function in an endless loop may print without end."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.left = out, MAX_STORED

    def write(self, text: str) -> int:
        self.out.write(text[:self.left])
        self.out.flush()  # a time limit ends the process without a warning
        self.left -= len(text[:self.left])
        return len(text)


def printed_lines(text: str, by: str) -> list[str]:
    """The text that the student's code printed, because students debug with print; at most MAX_LINES lines."""
    said = text.expandtabs(4).strip().splitlines()
    if not said:
        return []
    shown = [escaped(line)[:MAX_WIDTH] for line in said[:MAX_LINES]]
    if len(text) >= MAX_STORED:
        shown.append("... and many more lines")
    elif len(said) > MAX_LINES:
        shown.append(f"... and {len(said) - MAX_LINES} more lines")
    return ["", f"  {by} printed:", *(f"    {line}" for line in shown)]
