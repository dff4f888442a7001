"""grade: check an answer to an exercise and give advice, as a tutor does."""

import argparse
import importlib
from typing import Any

from numpy_attention.errors import InputError


def add_parser(commands: Any) -> None:
    """The arguments of `grade`."""
    parser = commands.add_parser("grade", help="grade exercises, with hints", allow_abbrev=False)
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="answers, for example tutorials/exercises/softmax.py")
    add("--all", action="store_true", dest="everything", help="a table of all exercises; FILE is then a folder")
    add("--hint", type=int, metavar="N", help="show hint N of three instead of grading")
    about = "show the solution, if you have passed the exercise or give this option twice"
    add("--solution", action="append", default=[], metavar="NAME", help=about)
    add("--exercise", metavar="NAME", help="the exercise, if the file has another name")
    about = "seconds for one call of a function (default: 10); a file may take six times as long"
    add("--time-limit", type=float, default=10.0, metavar="S", help=about)
    parser.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    """The exit code is 0 if every answer is right, otherwise 1."""
    grade = importlib.import_module("numpy_attention.grade.run")
    if not a.time_limit > 0:
        raise InputError(f"grade: --time-limit must be more than 0 seconds, got {a.time_limit:g}")
    if a.solution:
        return 0 if grade.show_solutions(a.solution, a.files, a.time_limit) else 1
    if a.everything:
        return 0 if grade.grade_all(a.files, a.time_limit) else 1
    if not a.files:
        raise InputError("grade: no file is given. Examples: grade tutorials/exercises/softmax.py, or grade --all")
    if a.hint is None:
        return 0 if grade.grade_files(a.files, a.exercise, a.time_limit) else 1
    for file in a.files:
        print(grade.hint_text(grade.exercise_of(file, a.exercise), a.hint, "--hint "))
    return 0
