"""Operator mutations of the chapters: change one operator of an op's source at a time, and ask who notices.

    PYTHONPATH=. python tests/gallery/operator_mutations.py            all chapters, with the survivors
    PYTHONPATH=. python tests/gallery/operator_mutations.py softmax    one chapter

The kinds are those of `operator_changes` in tests/mutations/changes.py. The checks of arguments are left alone: what
they refuse is tested elsewhere. A mutation is killed when a property of the catalogue fails for the op, or, for what
has no backward, when its values change: masks, positions and erf are held to formulas.
"""

import ast
import importlib
import re
import signal
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy_attention.gallery.killing import KILLERS, failure

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import float32_gradients_agree_with_float64_differences
from numpy_attention.catalogue.table import CATALOGUE
from tests.gallery.explained import reason_for
from tests.gallery.values import VALUE_CHAPTERS, VALUES
from tests.mutations.changes import Mutation, operator_changes

PACKAGE = Path(__file__).parents[2] / "numpy_attention"
OPS = PACKAGE / "ops"
CHAPTERS = (
    "linear", "sums", "embedding", "softmax", "masks", "dropout", "attention", "heads", "positions", "normalization",
    "activations", "erf", "losses", "tiled_attention", "tiles", "linear_cross_entropy", "edits",
)
ROOMS = dict.fromkeys(CHAPTERS, "ops") | {"edits": "inside"}
SECONDS = 60  # of the processor's time: a mutation that runs longer has made an endless loop

PLACES = (ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Call, ast.Attribute, ast.Compare, ast.Constant)


def source_of(chapter: str) -> Path:
    """The file of a chapter."""
    return PACKAGE / ROOMS[chapter] / f"{chapter}.py"


def mutations(chapter: str) -> Iterator[Mutation]:
    """All mutations of a chapter, in order of its lines."""
    tree = ast.parse(source_of(chapter).read_text("utf-8"))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        if re.match("_?check", function.name):
            continue
        for node in _places(function):
            for kind, changed in operator_changes(node):
                before, after = ast.unparse(node), ast.unparse(changed)
                if before != after:
                    yield Mutation(chapter, function.name, node.lineno, kind, before, after, tree, node, changed)


def _places(function: ast.FunctionDef) -> Iterator[Any]:
    """Expressions and in-place steps of a body, but not those of checks that raise, docstrings or annotations."""

    def walk(node: ast.AST) -> Iterator[Any]:
        if isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in ast.walk(node)):
            return
        if isinstance(node, (ast.Raise, ast.arguments, ast.FunctionDef, ast.Assert)):
            return
        if isinstance(node, ast.Expr) and re.match(r"_?(require|check)", ast.unparse(node)):
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".reshape"):
            yield from walk(node.func)  # any negative number stands for "the rest" in a shape, not -1 alone
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


def killed_by(mutation: Mutation) -> str:
    """Which property notices; empty when none does."""
    room = f"numpy_attention.{ROOMS[mutation.file]}"
    module = types.ModuleType(f"{room}.{mutation.file}")
    module.__package__ = room

    def out_of_time(*_: Any) -> None:
        raise TimeoutError("an endless loop")

    signal.signal(signal.SIGVTALRM, out_of_time)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        with np.errstate(all="ignore"):
            exec(compile(mutation.tree, f"{mutation.file}.py", "exec"), module.__dict__)
            return _values_changed(module, mutation) or _property_fails(module, mutation)
    except Exception as error:
        return f"stops with {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _property_fails(module: types.ModuleType, mutation: Mutation) -> str:
    original = importlib.import_module(f"numpy_attention.{ROOMS[mutation.file]}.{mutation.file}")
    entries = [
        replace(entry, op=getattr(module, entry.covers), op_backward=getattr(module, f"{entry.covers}_backward"))
        for entry in CATALOGUE.values()
        if entry.build is None and hasattr(original, entry.covers) and _concerns(mutation, entry, original)
    ]
    cheap_first = sorted(entries, key=lambda entry: len(entry.spec))
    for seed in (0, 1, 2):
        for property_ in (*KILLERS, float32_gradients_agree_with_float64_differences):
            for entry in cheap_first:
                if failure(property_, entry, seed, None):
                    return f"{property_.__name__}, {entry.name}"
    return ""


def _concerns(mutation: Mutation, entry: Entry, original: types.ModuleType) -> bool:
    """A public function concerns its own entries; a helper all entries of the chapter."""
    public = {name for name in vars(original) if f"{name}_backward" in vars(original)}
    own = mutation.function.removesuffix("_backward")
    return own not in public or entry.covers == own


def _values_changed(module: types.ModuleType, mutation: Mutation) -> str:
    """What has no backward is held to plain formulas."""
    for name, trial in VALUES.items():
        if hasattr(module, name) and mutation.file == VALUE_CHAPTERS[name]:
            try:
                trial(getattr(module, name))
            except AssertionError:
                return f"values of {name}"
    return ""


def main(chapters: list[str]) -> None:
    """A line a chapter, then the survivors, each with the reason why nobody notices."""
    survivors, count, started = [], 0, time.perf_counter()
    for chapter in chapters or CHAPTERS:
        found = list(mutations(chapter))
        alive = [mutation for mutation in found if not killed_by(mutation)]
        survivors += alive
        count += len(found)
        print(f"{chapter:<16} {len(found) - len(alive):>3} of {len(found):>3} killed", flush=True)
    print(f"{count - len(survivors)} of {count} killed, {time.perf_counter() - started:.0f} s")
    for one in survivors:
        reason = reason_for(one.place, one.change) or "NOT EXPLAINED"
        print(f"{one.place}, line {one.line}, {one.kind}: {one.change}\n    {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
