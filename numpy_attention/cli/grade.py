"""grade: look at an answer to an exercise as a tutor would."""

import argparse
import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

from numpy_attention.errors import InputError
from numpy_attention.files import temporary_folder


def add_parser(commands: Any) -> None:
    """The arguments of `grade`."""
    parser = commands.add_parser("grade", help="grade exercises, with hints", allow_abbrev=False)
    parser.add_argument("files", nargs="*", metavar="FILE", help="answers, for example tutorials/exercises/softmax.py")
    parser.add_argument("--all", action="store_true", dest="everything", help="a table of all exercises (in FOLDER)")
    parser.add_argument("--hint", type=int, metavar="N", help="show hint N of three instead of grading")
    parser.add_argument(
        "--solution", action="append", default=[], metavar="NAME",
        help="show a worked solution, once the exercise is passed or when this is given twice",
    )
    parser.add_argument("--exercise", metavar="NAME", help="the exercise, when the file has another name")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds for a file (default: 60)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 when all is right, 1 when not."""
    grade = importlib.import_module("numpy_attention.grade.run")
    with hypothesis_elsewhere():
        try:
            a = arguments
            code: int = grade.main(a.files, a.everything, a.hint, a.exercise, a.time_limit, a.solution)
        except grade.GradeError as error:
            raise InputError(str(error)) from None
    return code


@contextlib.contextmanager
def hypothesis_elsewhere() -> Iterator[None]:
    """Hypothesis would leave a folder where the student works: let it go where nobody looks, unless told otherwise."""
    name = "HYPOTHESIS_STORAGE_DIRECTORY"
    if os.environ.get(name):
        yield
        return
    with temporary_folder() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            del os.environ[name]
