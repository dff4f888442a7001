"""The house in figures: `python tests/house_report.py [ROOT]`, ROOT a checkout (default: the one this file lies in).

How much there is: files, lines, and lines of code, which are neither blank nor of docstrings nor comments alone; and in
how many files of the checkout an op is named, as a word.

How long the way is: three things are done under a profiler. One step of the smallest GPT is trained from the command
line (one layer of one head, width 8, one worker), a right softmax is checked, and a wrong one is graded. Counted is
every call of a function of the package by the thread that does it; of the grading, by the grader, not by the process
that runs the student's file. The files visited are those that hold these functions. A change of file is a call into
another file than the call before it led to; the first call is one too. Returns are not counted; to a profiler a
generator that goes on is called again. Each is done once before, so that imports are no part of it, and once after,
without a profiler, for its seconds; those of the step are counted from the command to the end of the step.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

GROUPS = {
    "the book: ops, layers, models, training": {"ops", "layers", "models", "training"},
    "the checker: gradcheck": {"gradcheck"},
    "grade, catalogue, gallery": {"grade", "catalogue", "gallery"},
}
NAMES = ("softmax", "layer_norm")
SMALLEST = "--steps 1 --layers 1 --heads 1 --d-model 8 --context 8 --batch 2 --workers 1 --text text.txt"
WRONG = "return y * dy"


def main(root: Path) -> None:
    """Print everything about one checkout."""
    package = root / "numpy_attention"
    groups: dict[str, list[Path]] = {name: [] for name in [*GROUPS, "everything else"]}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        groups[next((name for name, rooms in GROUPS.items() if room in rooms), "everything else")].append(path)
    groups["the package"] = [path for files in groups.values() for path in files]
    groups["tests"] = sorted((root / "tests").rglob("*.py"))
    print(f"{'':<42}{'files':>7}{'lines':>9}{'of code':>10}")
    for name, files in groups.items():
        print(f"{name:<42}{len(files):>7,}{sum(map(lines_of, files)):>9,}{sum(map(code_of, files)):>10,}")
    print(f"\nlines that import: {sum(map(imports_of, groups['the package'])):,}")
    for name in NAMES:
        print(f"files that name {name}: {files_with(name, root)}")
    print(f"\n{'':<42}{'files':>7}{'functions':>11}{'changes of file':>17}{'seconds':>9}")
    for way, (files, functions, changes, seconds) in followed(root).items():
        print(f"{way:<42}{files:>7}{functions:>11}{changes:>17,}{seconds:>9.3f}")


def lines_of(path: Path) -> int:
    """All lines of a file."""
    return path.read_text("utf-8").count("\n")


def code_of(path: Path) -> int:
    """Those that are neither blank nor a comment alone nor within a docstring."""
    lines = path.read_text("utf-8").splitlines()
    left_out = {i for i, line in enumerate(lines, 1) if not line.strip() or line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            left_out |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines) - len(left_out)


def imports_of(path: Path) -> int:
    """How many lines its imports take."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    found = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in found)


def files_with(name: str, root: Path) -> int:
    """How many files of the checkout hold a word, those that git ignores left out."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    word = re.compile(rf"\b{name}\b".encode())
    return sum(bool(word.search((root / one).read_bytes())) for one in names if (root / one).is_file())


def followed(root: Path) -> dict[str, tuple[int, int, int, float]]:
    """The three ways, each in a process of its own that sees this root alone."""
    found = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
            exercise = (root / "tutorials" / "exercises" / "softmax.py").read_text("utf-8")
            Path(folder, "softmax.py").write_text(exercise.replace("raise NotImplementedError", WRONG))
            command = [sys.executable, str(Path(__file__).resolve()), "--follow", str(root), way]
            alone = os.environ | {"PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found[way] = json.loads(done.stdout.splitlines()[-1])
    return found


class Way:
    """What a profiler sees of one thing that is done, up to where it stops."""

    def __init__(self, root: Path) -> None:
        self.package = str(root / "numpy_attention") + os.sep
        self.calls: list[CodeType] = []

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self.package):
            self.calls.append(frame.f_code)

    def figures(self) -> tuple[int, int, int]:
        files = [code.co_filename for code in self.calls]
        return len(set(files)), len(set(self.calls)), sum(a != b for a, b in zip(["", *files], files))


class StepIsDone(Exception):
    """There is nothing more to see."""


def train() -> None:
    """One step, from the command line."""
    from numpy_attention.cli import main as command_line

    trainer = importlib.import_module("numpy_attention.runs.trainer").Trainer
    step = trainer.one_step

    def watched(self: object, *arguments: object) -> None:
        step(self, *arguments)
        sys.setprofile(None)
        raise StepIsDone

    trainer.one_step = watched
    try:
        with contextlib.suppress(StepIsDone):
            command_line(["train", *SMALLEST.split(), "--out", f"run-{time.monotonic_ns()}"])
    finally:
        trainer.one_step = step


def check() -> None:
    """The right gradient of the softmax."""
    import numpy as np

    import numpy_attention as na

    na.gradcheck.gradcheck(na.softmax, na.softmax_backward, (np.random.default_rng(0).standard_normal((3, 4)),))


def grade() -> None:
    """The exercise on the softmax, with a wrong answer."""
    from numpy_attention.cli import main as command_line

    assert command_line(["grade", "softmax.py"]) == 1


WAYS: dict[str, Callable[[], None]] = {
    "one step of the smallest GPT": train, "a right gradcheck of softmax": check, "grading a wrong softmax": grade,
}


def follow(root: Path, name: str) -> None:
    """Go one way under a profiler, and again by the clock; the figures are the last line printed."""
    way, go = Way(root), WAYS[name]
    importlib.import_module("numpy_attention.cli")
    with contextlib.redirect_stdout(io.StringIO()):
        go()
        sys.setprofile(way.note)
        go()
        sys.setprofile(None)
        started = time.perf_counter()
        go()
    print(json.dumps([*way.figures(), time.perf_counter() - started]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--follow"]:
        follow(Path(sys.argv[2]).resolve(), sys.argv[3])
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
