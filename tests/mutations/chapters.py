"""Chapters: changes one operator of an op's source at a time, and finds the property of the catalogue that notices.

    python -m tests.mutations chapters            all chapters, with the surviving mutations
    python -m tests.mutations chapters softmax    one chapter

The files are those of ops/, and other files with functions that are ops in the catalogue. The changes are those of
`operator_changes`. Checks of arguments are not changed; other tests cover them. A mutation is killed if a property
fails for the op. A function without a backward (masks, positions, erf) is compared with a plain formula.
"""

import ast
import importlib
import re
import signal
import time
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import float32_gradients_agree_with_float64_differences
from numpy_attention.catalogue.show import PROPERTIES, failure
from numpy_attention.catalogue.table import CATALOGUE
from tests.mutations.changes import Mutation, operator_changes
from tests.mutations.draw import PACKAGE
from tests.mutations.explained import reason_for
from tests.mutations.values import VALUES, is_defined_in

SECONDS = 60  # of processor time: a mutation that runs longer is an endless loop

PLACES = (ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Call, ast.Attribute, ast.Compare, ast.Constant)


def mutations(chapter: str) -> Iterator[Mutation]:
    """All mutations of a chapter, by its name, in order of its lines."""
    source = source_of(chapter).read_text("utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    file = source_of(chapter).relative_to(PACKAGE).with_suffix("").as_posix()
    seen: Counter[str] = Counter()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        if re.match("_?check", function.name):
            continue
        for node in _places(function):
            for kind, changed in operator_changes(node):
                before, after = ast.unparse(node), ast.unparse(changed)
                if before != after:
                    words = (file, function.name, node.lineno, kind, before, after)
                    line = lines[node.lineno - 1].split("  #")[0].strip()
                    one = Mutation(*words, tree, node, changed, line)
                    seen[one.name] += 1
                    yield replace(one, number=seen[one.name])


def _places(function: ast.FunctionDef) -> Iterator[Any]:
    """Expressions and in-place steps of a body, without checks that raise, docstrings and annotations."""

    def walk(node: ast.AST) -> Iterator[Any]:
        if isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in ast.walk(node)):
            return
        if isinstance(node, (ast.Raise, ast.arguments, ast.FunctionDef, ast.Assert)):
            return
        if isinstance(node, ast.Expr) and re.match(r"_?(require|check)", ast.unparse(node)):
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".reshape"):
            yield from walk(node.func)  # in a shape, every negative number means "the rest"
            for argument in node.args:
                if ast.unparse(argument) != "-1":
                    yield from walk(argument)
            return
        if isinstance(node, PLACES):
            yield node
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    for statement in function.body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield from walk(statement)


def _chapters() -> dict[str, Path]:
    """The file of every chapter: the files of ops/, and other files that define an op of the catalogue."""
    ops = {entry.op.__module__ for entry in CATALOGUE.values() if entry.build is None}
    named = {PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py") for module in ops}
    files = sorted(named | {*(PACKAGE / "ops").glob("[!_]*.py")}, key=lambda path: (path.parent.name != "ops", path))
    return {path.stem: path for path in files}


CHAPTERS = _chapters()


def source_of(chapter: str) -> Path:
    """The file of a chapter."""
    return CHAPTERS[chapter]


def killed_by(mutation: Mutation) -> str:
    """The property that notices; empty if no property notices."""
    name = f"numpy_attention.{mutation.file.replace('/', '.')}"
    module = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0]

    def out_of_time(*_: Any) -> None:
        raise TimeoutError("an endless loop")

    signal.signal(signal.SIGVTALRM, out_of_time)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        with np.errstate(all="ignore"):
            exec(compile(mutation.tree, f"{mutation.file}.py", "exec"), module.__dict__)
            return _values_changed(module) or _property_fails(module, mutation)
    except Exception as error:
        return f"stops with {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _property_fails(module: types.ModuleType, mutation: Mutation) -> str:
    original = importlib.import_module(module.__name__)
    entries = [
        replace(entry, op=getattr(module, entry.covers), op_backward=getattr(module, f"{entry.covers}_backward"))
        for entry in CATALOGUE.values()
        if entry.build is None and is_defined_in(original, entry.covers) and _applies_to(mutation, entry, original)
    ]
    cheap_first = sorted(entries, key=lambda entry: len(entry.spec))
    for seed in (0, 1, 2):
        for property_ in (*PROPERTIES, float32_gradients_agree_with_float64_differences):
            for entry in cheap_first:
                if failure(property_, entry, seed, None):
                    return f"{property_.__name__}, {entry.name}"
    return ""


def _applies_to(mutation: Mutation, entry: Entry, original: types.ModuleType) -> bool:
    """Whether the entry tests the mutation: a public function has its own entries, a helper all of the chapter."""
    public = {name for name in vars(original) if name[0] != "_" and f"{name}_backward" in vars(original)}
    own = mutation.function.removesuffix("_backward")
    return own not in public or entry.covers == own


def _values_changed(module: types.ModuleType) -> str:
    """Compare functions without a backward with plain formulas."""
    for name, trial in VALUES.items():
        if is_defined_in(module, name):
            try:
                trial(getattr(module, name))
            except AssertionError:
                return f"values of {name}"
    return ""


def table() -> Iterator[str]:
    """The number of changes in each chapter; a slow test checks that all are noticed or change no result."""
    yield "| chapter | changes | noticed | change no result |"
    yield "|---|---|---|---|"
    rows = []
    for chapter in CHAPTERS:
        found = list(mutations(chapter))
        explained = sum(bool(reason_for(one)) for one in found)
        if found:
            rows.append((chapter.replace("_", " "), len(found), len(found) - explained, explained))
    rows.append(("total", *(sum(column) for column in list(zip(*rows))[1:])))
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def main(chapters: list[str]) -> None:
    """Print a line for each chapter, then the surviving mutations with the reasons."""
    survivors, count, started = [], 0, time.perf_counter()
    for chapter in chapters or CHAPTERS:
        found = list(mutations(chapter))
        alive = [mutation for mutation in found if not killed_by(mutation)]
        survivors += alive
        count += len(found)
        print(f"{chapter:<16} {len(found) - len(alive):>3} of {len(found):>3} killed", flush=True)
    print(f"{count - len(survivors)} of {count} killed, {time.perf_counter() - started:.0f} s")
    for one in survivors:
        reason = reason_for(one) or "NOT EXPLAINED"
        print(f"{one.place}, line {one.line}, {one.kind}: {one.change}\n    {reason}")

