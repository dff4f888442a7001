"""gradcheck and grade: check the gradients of the package, and the answers to its exercises."""

import argparse
import importlib
import sys
from typing import Any

from numpy_attention.backend import get_backend
from numpy_attention.errors import InputError, command


def gradcheck(a: argparse.Namespace) -> int:
    """Print one line for each entry with its worst error against the complex step; the exit code is 1 if any fails."""
    if a.seed < 0:
        raise InputError(f"--seed must be at least 0, got {a.seed}")
    if a.gallery and a.names:
        raise InputError("--gallery shows all known mistakes; do not give a NAME")
    if a.gallery:
        return 1 if importlib.import_module("numpy_attention.tutor").print_gallery(sys.stdout) else 0
    checks: Any = importlib.import_module("numpy_attention.tutor.checks")
    return 1 if checks.run(a.names or None, a.seed, sys.stdout, get_backend(a.backend)) else 0


def grade(a: argparse.Namespace) -> int:
    """Grade answers, or print hints or solutions; the exit code is 0 if every answer is right, otherwise 1."""
    tutor: Any = importlib.import_module("numpy_attention.tutor.run")
    if not a.time_limit > 0:
        raise InputError(f"grade: --time-limit must be more than 0 seconds, got {a.time_limit:g}")
    if a.solution:
        return 0 if tutor.show_solutions(a.solution, a.files, a.time_limit) else 1
    if a.everything:
        return 0 if tutor.grade_all(a.files, a.time_limit) else 1
    if not a.files:
        one, every = command("grade tutorials/exercises/softmax.py"), command("grade --all")
        raise InputError(f"grade: no file is given. Examples: {one}, or {every}")
    if a.hint is None:
        return 0 if tutor.grade_files(a.files, a.exercise, a.time_limit) else 1
    for file in a.files:
        print(tutor.hint_text(tutor.exercise_of(file, a.exercise), a.hint, "--hint "))
    return 0
