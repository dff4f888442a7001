"""Helpers that act as a student: they hand in a file, or a module with one known mistake."""

from collections.abc import Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention.tutor import Mistake, child, run
from numpy_attention.tutor.catalogue import EXERCISES, ours
from numpy_attention.tutor.exercise import Exercise

BY_DEFAULT = ("softmax", "linear", "embedding", "attention_forward", "adam", "top_p")
UNWRITTEN = "raise NotImplementedError"
FOLDER = Path(__file__).parents[2] / "tutorials" / "exercises"
RIGHT = "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))"  # of the exercise softmax


def by_default_a_few(names: Iterable[str]) -> list[Any]:
    """Parameters of a test; all exercises except a few are slow."""
    return [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.slow) for name in names]


def written(folder: Path, name: str, *answers: str, before: str = "", after: str = "") -> Path:
    """A file with the exercise in which each answer replaces one `raise NotImplementedError`."""
    first, *others = (FOLDER / f"{name}.py").read_text("utf-8").split(UNWRITTEN)
    answers += (UNWRITTEN,) * (len(others) - len(answers))
    file = folder / f"{name}.py"
    file.write_text(before + first + "".join(map(str.__add__, answers, others)) + "\n" + after, encoding="utf-8")
    return file


def grade(
    folder: Path, name: str, *answers: str, time_limit: float = 60.0, before: str = "", after: str = ""
) -> tuple[int, str]:
    """The exit code and the text of the command."""
    file = written(folder, name, *answers, before=before, after=after)
    with redirect_stdout(StringIO()) as out:
        right = run.grade_files([str(file)], None, time_limit)
    return 0 if right else 1, out.getvalue()


def tutor_text(folder: Path, name: str, *answers: str) -> str:
    """The tutor's text in one line; graded in this process."""
    return " ".join(child.grade_here(written(folder, name, *answers), EXERCISES[name]).text.split())


def answer_of(exercise: Exercise, mistake: Mistake) -> Any:
    """A module with the right answers, except for one known mistake."""
    names = {mistake.covers, f"{mistake.covers}_backward"} & exercise.needed.keys()
    return SimpleNamespace(**{**vars(ours()), **{name: mistake.made(name) for name in names}})
