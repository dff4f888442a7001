"""The house in figures: `python tests/house_report.py [ROOT]`, ROOT a checkout (default: the one this file lies in).

How long the way is. From the command line one step of the smallest GPT is trained (one layer of one head, width 8,
one worker), under a profiler. Counted is every call of a function of the package, until the step is done. The files
visited are those that hold these functions. A change of file is a call into another file than the call before it led
to; the first call is one too. Returns are not counted. To a profiler a generator that goes on is called again: the
next column leaves that out, so there each function and each generator counts once, when it begins. The last column
leaves out the calls of errors.py as well, which look at arguments and come back. The step is measured once more within
the trainer alone, and, where there is a plain loop, in that.

How much is prose. A line of documentation is a line of a docstring, or one that holds a comment and nothing else.

What stands more than once. Shapes of code that are easily copied are counted by their syntax:
a sandwich is a dropout (or its backward) whose result is added to the stream within four statements.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

SMALLEST = "--steps 1 --layers 1 --heads 1 --d-model 8 --context 8 --batch 2 --workers 1 --out run --text text.txt"
DROPOUT = {"dropout", "drop", "_dropout", "dropout_backward", "drop_backward"}
ALONE = "(files in no room)"


def main(root: Path) -> None:
    """Print everything about the package of one checkout."""
    package = root / "numpy_attention"
    files = sorted(package.rglob("*.py"))
    print_rooms(package, files)
    print_way(root)
    print_copies(package, files)


def print_rooms(package: Path, files: list[Path]) -> None:
    """Files, lines, lines of code, and the shares of prose, a room at a time."""
    rooms: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0, 0])
    for path in files:
        inside = path.relative_to(package).parts
        figures = [1, *lines_of(path.read_text("utf-8"))]
        for room in (inside[0] if len(inside) > 1 else ALONE, "all"):
            rooms[room] = [before + more for before, more in zip(rooms[room], figures)]
    total = rooms.pop("all")
    print(f"{'room':<20}{'files':>6}{'lines':>8}{'of code':>9}{'prose':>7}{'of all lines':>14}")
    for room, (count, lines, code, prose) in [*sorted(rooms.items()), ("all", total)]:
        print(f"{room:<20}{count:>6}{lines:>8,}{code:>9,}{prose / lines:>7.0%}{lines / total[1]:>14.0%}")
    largest = max(rooms, key=lambda room: rooms[room][1])
    print(f"the largest room, {largest}, holds {rooms[largest][1] / total[1]:.1%} of the lines\n")


def lines_of(text: str) -> tuple[int, int, int]:
    """All lines of a file, those of code, those of docstrings and comments (their blank lines included)."""
    lines = text.splitlines()
    prose = {i for i, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            prose |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    blank = {i for i, line in enumerate(lines, 1) if not line.strip()}
    return len(lines), len(lines) - len(blank | prose), len(prose)


def print_way(root: Path) -> None:
    """Files visited and changes of file in one training step, measured in a process that sees this root alone."""
    titles = f"{'files visited':>16}{'changes of file':>18}{'generators once':>18}{'no checks':>12}"
    print(f"{'one step of the smallest GPT':<28}{titles}")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
        command = [sys.executable, str(Path(__file__).resolve()), "--follow", str(root)]
        alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, cwd=directory, env=alone, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
    for way, (visited, changes, once, formulas) in json.loads(done.stdout.splitlines()[-1]).items():
        print(f"{way:<28}{visited:>16}{changes:>18}{once:>18}{formulas:>12}")
    print()


def follow(root: Path) -> None:
    """Train one step from the command line, and again by the plain loop; the figures are the last line printed."""
    sys.path.insert(0, str(root))
    from numpy_attention.cli import main as command_line

    package = str(root / "numpy_attention") + os.sep
    ways: dict[str, tuple[int, ...]] = {}
    calls: list[tuple[str, bool]] = []
    begun: dict[int, FrameType] = {}  # kept, so that no two of them have one address

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(package):
            calls.append((file, begun.get(id(frame)) is frame))
            begun[id(frame)] = frame

    moved = Path(package, "runs").is_dir()  # before, the trainer was training/loop.py
    trainer = importlib.import_module(f"numpy_attention.{'runs.trainer' if moved else 'training.loop'}").Trainer
    step = trainer.one_step

    class StepIsDone(Exception):
        """There is nothing more to see."""

    def watched(self: object, *arguments: object) -> None:
        before = len(calls)
        step(self, *arguments)
        sys.setprofile(None)
        ways["from the command line"] = figures(calls)
        ways["the trainer's step alone"] = figures(calls[before:])
        raise StepIsDone

    trainer.one_step = watched
    sys.setprofile(note)
    with contextlib.suppress(StepIsDone):
        command_line(["train", *SMALLEST.split()])
    if moved and Path(package, "training", "loop.py").exists():
        import numpy as np

        import numpy_attention as na
        from numpy_attention.training import loop

        config = na.GPTConfig(30, 8, d_model=8, num_heads=1, num_layers=1)
        model = na.GPT(config, np.random.default_rng(0))
        optimizer, ids = na.AdamW(model.parameters()), np.arange(18).reshape(2, 9)
        calls.clear()
        sys.setprofile(note)
        loop.train(model, optimizer, [(ids[:, :-1], ids[:, 1:])])
        sys.setprofile(None)
        ways["the plain loop's step"] = figures(calls)
    print()
    print(json.dumps(ways))


def figures(calls: list[tuple[str, bool]]) -> tuple[int, ...]:
    """Files visited, changes of file, these without the generators that go on, and then without the checks."""
    every = [file for file, _ in calls]
    once = [file for file, goes_on in calls if not goes_on]
    formulas = [file for file in once if Path(file).name != "errors.py"]
    return len(set(every)), *(sum(a != b for a, b in zip(["", *files], files)) for files in (every, once, formulas))


def print_copies(package: Path, files: list[Path]) -> None:
    """How often each shape stands in the source."""
    texts = {path: path.read_text("utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}

    def lines_with(pattern: str) -> int:
        return sum(len(re.findall(pattern, text, re.MULTILINE)) for text in texts.values())

    def functions(is_one: Callable[[str], object]) -> int:
        return sum(bool(is_one(f.name)) for tree in trees.values() for f in functions_of(tree))

    lists = [statements for tree in trees.values() for statements in lists_of_statements(tree)]
    ops = {path: tree for path, tree in trees.items() if path.parent == package / "ops"}
    checks, body = (sum(column) for column in zip(*map(checks_of, ops.values())))
    print("shapes that are easily copied")
    for what, count in {
        "residual sandwich, forward": sum(sandwiches(statements, backward=False) for statements in lists),
        "residual sandwich, backward": sum(sandwiches(statements, backward=True) for statements in lists),
        "`if [not] self.pre_norm`": lines_with(r"^\s*if (?:not )?self\.pre_norm:"),
        "write under another name, then rename": lines_with(r"\b(?:os|temporary|unfinished)\.(?:replace|rename)\("),
        "`_into` twins of ops": sum(f.name.endswith("_into") for tree in ops.values() for f in functions_of(tree)),
        "helpers that fold or group heads": functions(re.compile(r"_(?:un)?(?:fold|group)(?:_heads|ed_heads)?$").match),
        "`# fmt: skip`": lines_with(r"# fmt: skip"),
    }.items():
        print(f"  {what:<58}{count:>6}")
    print(f"  {'checks of arguments, share of the lines of code in ops':<58}{checks / body:>6.0%}")


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Every function and method in a tree."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def lists_of_statements(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements that stand below each other."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                yield statements


def sandwiches(statements: list[ast.stmt], backward: bool) -> int:
    """Dropouts, or their backwards, whose result is added to something in the same statement or the next four."""
    found = 0
    for i, statement in enumerate(statements):
        called = {name_of_call(node) for node in ast.walk(statement) if isinstance(node, ast.Call)} & DROPOUT
        alone = not isinstance(statement, ast.If) or len(statement.body) == 1
        of_this_way = any(name.endswith("backward") == backward for name in called)
        if isinstance(statement, ast.Assign | ast.Return | ast.If) and alone and of_this_way:
            found += any(adds(later) for later in statements[i : i + 5])
    return found


def adds(statement: ast.stmt) -> bool:
    """Whether a statement adds to the stream: `y += x` or `y = x + ...`."""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add)
    value = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add) for part in parts)


def name_of_call(call: ast.Call) -> str:
    """What is called, without what it hangs on."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def checks_of(tree: ast.AST) -> tuple[int, int]:
    """Lines of functions that check arguments, and all lines of code in functions."""
    checks = body = 0
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        statements = function.body[1:] if ast.get_docstring(function) else function.body
        lines = sum((s.end_lineno or 0) - s.lineno + 1 for s in statements)
        body += lines
        if re.match(r"_?(check|require)_", function.name):
            checks += lines
        else:
            checks += sum((s.end_lineno or 0) - s.lineno + 1 for s in statements if is_check(s))
    return checks, body


def is_check(statement: ast.stmt) -> bool:
    """`if ...: raise ...`, or a call of a function that checks."""
    if isinstance(statement, ast.If):
        return any(isinstance(inner, ast.Raise) for inner in statement.body)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(re.match(r"_?(check|require)_", name_of_call(call)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--follow"]:
        follow(Path(sys.argv[2]).resolve())
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
