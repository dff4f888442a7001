"""An exception on its way from a student's function to the grader: told in the one process, raised in the other.

Its name and its message may be anything at all. They are made fit to print, and no more is made of them.
"""

import builtins
import contextlib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy_attention.errors import printable
from numpy_attention.grade.guard import NotYours

LONGEST = 2000  # letters of a message


def tell(error: BaseException, path: Path) -> dict[str, Any]:
    """What there is to say of an exception: the types it is of, its message, its line in the student's file."""
    kinds = [cls.__name__[:80] for cls in type(error).__mro__][:12]
    line, text = place(error, path)
    return {
        "error": kinds, "message": message_of(error), "refused": isinstance(error, NotYours), "line": line, "text": text
    }


def place(error: BaseException, path: Path) -> tuple[int, str]:
    """The innermost line of the student's own file; 0 where there is none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return ((own[-1].lineno or 0), (own[-1].line or "")[:200]) if own else (0, "")


def message_of(error: BaseException) -> str:
    """Its message, not too much of it."""
    try:
        return str(error)[:LONGEST]
    except BaseException:
        return "(its message cannot be shown)"


class Stopped(Exception):
    """What a function of the file raised: one of these that is also what it was there. `place` is its line."""

    place = ""


def stopped(reply: Mapping[str, Any], file: str) -> Exception:
    """The exception that a reply tells of; the name and message may be anything, and are made fit to print."""
    message = printable(str(reply.get("message", ""))[:LONGEST])
    if reply.get("refused"):
        return NotYours(message)
    kinds = [str(kind) for kind in reply["error"]] if isinstance(reply["error"], list) else []
    base: type[Exception] = Exception
    for kind in kinds:
        found = getattr(builtins, kind, None)
        if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, UnicodeError):
            with contextlib.suppress(TypeError):  # a group asks for more than a message
                found(message)
                base = found
                break
    name = kinds[0] if kinds and kinds[0].isidentifier() else "Exception"
    error = type(name, (Stopped, base), {"__str__": lambda _: message})(message)
    line, text = reply.get("line"), printable(str(reply.get("text", ""))[:200])
    if isinstance(line, int) and line > 0:
        error.place = f" ({file}, line {line}: {text})"
    return error
