"""The other process: imports a student's file, grades it, and leaves the answer as JSON.

    python -m numpy_attention.grade.worker FILE EXERCISE ANSWER WHERE SECONDS
"""

import contextlib
import faulthandler
import importlib.util
import io
import json
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy_attention.grade.exercise import Exercise
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.grading import Grade, grade_module


def main(file: str, name: str, answer: str, where: str, seconds: str) -> None:
    """Grade; when the time is over, write where the program stands, and end."""
    with open(where, "w", encoding="utf-8") as stuck:
        faulthandler.dump_traceback_later(float(seconds), exit=True, file=stuck)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            grade = grade_path(Path(file), EXERCISES[name])
        faulthandler.cancel_dump_traceback_later()
    said = printed.getvalue().strip().splitlines()
    if said:  # a student looks for a mistake with print: show it, but not all of it
        shown = said[:12] + ([f"... and {len(said) - 12} lines more"] if len(said) > 12 else [])
        grade.lines += ["", "  The file printed:", *(f"    {line}" for line in shown)]
    Path(answer).write_text(json.dumps(asdict(grade)), encoding="utf-8")


def grade_path(path: Path, exercise: Exercise) -> Grade:
    """Import a file and grade it; a file that cannot be imported gets a plain explanation."""
    spec = importlib.util.spec_from_file_location(path.stem + "_answer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        return _broken(exercise, f"{path.name} is no Python yet: {error.msg}, line {error.lineno}: "
                                 f"{(error.text or '').strip()}")
    except ImportError as error:
        return _broken(exercise, f"{path.name} cannot be imported: {error}{_line(error, path)}")
    except (Exception, SystemExit) as error:
        return _broken(exercise, f"{path.name} stops while it is imported, with {type(error).__name__}: "
                                 f"{error}{_line(error, path)}")
    missing = [f"the {kind} {needed}" for needed, kind in exercise.needed.items() if not _has(module, needed, kind)]
    if missing:
        return _broken(exercise, f"{path.name} must define {', '.join(missing)}; was something renamed or deleted?")
    return grade_module(exercise, module)


def _has(module: Any, name: str, kind: str) -> bool:
    made = getattr(module, name, None)
    return isinstance(made, type) if kind == "class" else callable(made)


def _line(error: BaseException, path: Path) -> str:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" (line {own[-1].lineno}: {own[-1].line})" if own else ""


def _broken(exercise: Exercise, text: str) -> Grade:
    return Grade(exercise.name, "broken", lines=["  " + text], summary=text)


if __name__ == "__main__":
    main(*sys.argv[1:])
