"""Calls a student's functions: an exception gets the line of the file, and printed text is stored."""

import faulthandler
import functools
import inspect
import io
import os
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

from numpy_attention.errors import escaped

METHODS = ("__init__", "forward", "backward", "step")
MAX_STORED = 1 << 14  # characters of printed text that are kept
MAX_LINES, MAX_WIDTH, MAX_TEXT = 12, 200, 2000  # printed lines that are shown, characters of a line, of a message


class Exit(Exception):
    """A student's function called exit()."""


def with_place(made: Any, file: Path, seconds: float = 0.0, name: str = "") -> Any:
    """The function, or the class with its methods; an exception has the line of the student's file as its `place`.

    With `seconds`, a longer call ends the process (`end_late`). `name` replaces the name of the file in the texts.
    """
    if isinstance(made, type):
        methods = {method: getattr(made, method, None) for method in METHODS}
        placed = {key: with_place(f, file, seconds, name) for key, f in methods.items() if inspect.isfunction(f)}
        return type(made.__name__, (made,), placed)

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        timer = threading.Timer(seconds, end_late)
        timer.daemon = True
        if seconds:
            timer.start()
        try:
            return made(*args, **kwargs)
        except (Exception, SystemExit) as error:
            line, text = place(error, file)
            raised: Any = Exit(f"{error}") if isinstance(error, SystemExit) else error
            raised.place = f" ({name or file.name}, line {line}: {text})" if line else ""
            raise raised from None
        finally:
            timer.cancel()

    return call


def end_late() -> None:
    """End the process; standard error then holds "Timeout", and the lines that Python was running."""
    os.write(2, b"Timeout\n")
    faulthandler.dump_traceback(2)
    os._exit(1)


def place(error: BaseException, file: Path) -> tuple[int, str]:
    """The number and the text of the innermost line of the student's own file; 0 if there is none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return ((own[-1].lineno or 0), escaped((own[-1].line or "")[:200])) if own else (0, "")


def message_of(error: BaseException) -> str:
    """The first MAX_TEXT characters of the message of an exception, with escapes for unprintable characters."""
    return escaped(str(error)[:MAX_TEXT])


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
    if len(said) > MAX_LINES or len(text) >= MAX_STORED:
        shown.append("... and more lines")
    return ["", f"  {by} printed:", *(f"    {line}" for line in shown)]
