"""The package in figures: `python tests/house_report.py [ROOT]`; ROOT is a checkout (default: this file's checkout).

Size: files, lines, and lines of code (lines that are not blank, not a comment, and not in a docstring); and the number
of files in the checkout that mention an op as a word.

Paths: three tasks run under a profiler. One step of the smallest GPT is trained from the command line (one layer with
one head, width 8, one worker), a right softmax gradient is checked, and a wrong softmax gradient is graded. The report
counts the calls of functions of the package in the main thread; for the grading, only calls in the grader, not in the
process that runs the student's file. It counts the files that contain these functions, and the changes of file: calls
into another file than the previous call. The first call counts as a change; returns do not count; a generator that
continues counts as a new call. Each task runs once before, so that imports are not counted, and once after, without a
profiler, to measure the seconds; the seconds of the step go from the command to the end of the step.
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
        part = path.relative_to(package).parts[0]
        groups[next((name for name, parts in GROUPS.items() if part in parts), "everything else")].append(path)
    groups["the package"] = [path for files in groups.values() for path in files]
    groups["tests"] = sorted((root / "tests").rglob("*.py"))
    print(f"{'':<42}{'files':>7}{'lines':>9}{'of code':>10}")
    for name, files in groups.items():
        print(f"{name:<42}{len(files):>7,}{sum(map(lines_of, files)):>9,}{sum(map(code_of, files)):>10,}")
    print(f"\nlines of imports: {sum(map(imports_of, groups['the package'])):,}")
    for name in NAMES:
        print(f"files that mention {name}: {files_with(name, root)}")
    print(f"\n{'':<42}{'files':>7}{'functions':>11}{'changes of file':>17}{'seconds':>9}")
    for way, (files, functions, changes, seconds) in followed(root).items():
        print(f"{way:<42}{files:>7}{functions:>11}{changes:>17,}{seconds:>9.3f}")


def lines_of(path: Path) -> int:
    """All lines of a file."""
    return path.read_text("utf-8").count("\n")


def code_of(path: Path) -> int:
    """Lines that are not blank, not only a comment, and not in a docstring."""
    lines = path.read_text("utf-8").splitlines()
    left_out = {i for i, line in enumerate(lines, 1) if not line.strip() or line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            left_out |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines) - len(left_out)


def imports_of(path: Path) -> int:
    """The number of lines with imports."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    found = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in found)


def files_with(name: str, root: Path) -> int:
    """The number of files of the checkout that contain a word, without files ignored by git."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    word = re.compile(rf"\b{name}\b".encode())
    return sum(bool(word.search((root / one).read_bytes())) for one in names if (root / one).is_file())


def followed(root: Path) -> dict[str, tuple[int, int, int, float]]:
    """Run the three tasks, each in a separate process that imports only from this root."""
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
    """The calls that the profiler records during one task."""

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
    """Raised after the step, to stop the run."""


def train() -> None:
    """Train one step from the command line."""
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
    """Check the right gradient of the softmax."""
    import numpy as np

    import numpy_attention as na

    na.gradcheck.gradcheck(na.softmax, na.softmax_backward, (np.random.default_rng(0).standard_normal((3, 4)),))


def grade() -> None:
    """Grade the softmax exercise with a wrong answer."""
    from numpy_attention.cli import main as command_line

    assert command_line(["grade", "softmax.py"]) == 1


WAYS: dict[str, Callable[[], None]] = {
    "one step of the smallest GPT": train, "a right gradcheck of softmax": check, "grading a wrong softmax": grade,
}


def follow(root: Path, name: str) -> None:
    """Run one task under a profiler, then again to measure the time; the last printed line has the figures."""
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
