"""The other process of the command `grade`: imports a student's file, grades it, and prints the grade as JSON.

    python -P -m numpy_attention.tutor.child FILE EXERCISE SECONDS

With -P, and with the folder of the file at the end of Python's path, a file in the folder of the exercise, such as
copy.py, is not imported in place of Python's own module.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

from numpy_attention.tutor.answer import MAX_TEXT, Printed, message_of, place, with_place
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.exercise import Exercise
from numpy_attention.tutor.grading import grade_module
from numpy_attention.tutor.guard import NotOwnWork, guard_answers
from numpy_attention.tutor.result import RECORD, Grade, stopped


def grade_here(file: Path, exercise: Exercise, seconds: float = 0.0, **options: Any) -> Grade:
    """Grade a file in this process; with `seconds`, a longer call of a student's function ends the process."""
    try:
        own = _imported(file)
    except NotOwnWork as error:
        return stopped(exercise.name, "wrong", f"{file.name}: {error}")
    except (Exception, SystemExit) as error:
        return stopped(exercise.name, "broken", f"{file.name} {_import_failure(error, file)}")
    made = {True: "class", False: "function"}
    defined = {name: made[isinstance(one, type)] for name, one in own.items() if callable(one)}
    missing = [f"the {kind} {name}" for name, kind in exercise.needed.items() if defined.get(name) != kind]
    if missing:
        text = f"{file.name} must define {', '.join(missing)}; was it renamed or deleted?"
        return stopped(exercise.name, "broken", text)
    placed = {name: with_place(own[name], file, seconds) for name in exercise.needed}
    return grade_module(exercise, types.SimpleNamespace(**{**own, **placed}), **options)


def _imported(file: Path) -> dict[str, Any]:
    """The names that the file defines."""
    sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem + "_answer", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def _import_failure(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError):
        if not error.lineno:  # Python has not read any line
            return f"is not a text that Python can read ({error.msg}): save it again as plain text in UTF-8"
        return f"is not valid Python: {error.msg}, line {error.lineno}: {(error.text or '').strip()}"[:MAX_TEXT]
    line, text = place(error, file)
    at = f" (line {line}: {text})" if line else ""
    if isinstance(error, ImportError):
        return f"cannot be imported: {message_of(error)}{at}"
    return f"raises an error when it is imported, {type(error).__name__}: {message_of(error)}{at}"


def main(file: str, exercise: str, seconds: str) -> None:
    """Print what the file prints, and between it the grade so far: before each property, and at the end."""
    found, out = EXERCISES[exercise], sys.stdout
    guard_answers(found.answers, found.parts)

    def record(grade: Grade, running: str) -> None:
        print(f"\n{RECORD}{json.dumps([dataclasses.asdict(grade), running])}", file=out, flush=True)

    output: Any = Printed(out)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        record(grade_here(Path(file), found, float(seconds), before=record), "")
    os._exit(0)  # without waiting for threads of the file


if __name__ == "__main__":
    main(*sys.argv[1:])
