"""Finds the places where a file can be changed: expressions and statements that compute, with their surroundings."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.mutations.changes import Mutation, token_changes

LONG = 72  # characters of a change or a line that are shown


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a place: names of function and class, the statement, and names that can be confused."""

    function: tuple[str, ...]
    statement: str
    names: dict[str, str]


def token_mutations(file: str, source: str) -> Iterator[Mutation]:
    """All mutations of a file, in the order of its lines."""
    tree = ast.parse(source)
    seen: Counter[str] = Counter()
    for node, asked, around in _walk(tree, False, Surroundings((), "", _imported(tree))):
        for kind, changed in token_changes(node, asked, around.names):
            before, after = ast.unparse(node), ast.unparse(changed)
            if before == after:
                continue
            words = (".".join(around.function), node.lineno, kind, *_brief(before, after))
            made = Mutation(file, *words, tree, node, changed, _cut(around.statement))
            seen[made.name] += 1
            yield replace(made, number=seen[made.name])


def _brief(before: str, after: str) -> tuple[str, str]:
    """Both texts; of long texts only the part that differs, and a few characters around it."""
    if max(len(before), len(after)) <= LONG:
        return before, after
    start = _common_prefix(before, after)
    end = _common_prefix(before[start:][::-1], after[start:][::-1])
    start, end = max(start - LONG // 4, 0), max(end - LONG // 4, 0)
    parts = (text[start : len(text) - end] for text in (before, after))
    first, second = (f"{'...' * bool(start)}{part}{'...' * bool(end)}" for part in parts)
    return _cut(first), _cut(second)


def _common_prefix(a: str, b: str) -> int:
    """The number of characters in the common beginning of both."""
    return next((i for i, (one, other) in enumerate(zip(a, b)) if one != other), min(len(a), len(b)))


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def _walk(node: Any, asked: bool, around: Surroundings) -> Iterator[tuple[Any, bool, Surroundings]]:
    """The node and the places below it; `asked`: whether the node is a condition, for example of an `if`."""
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom)) or _is_about_types(node):
        return
    if isinstance(node, ast.ClassDef):
        inside = replace(around, function=(*around.function, node.name))
        for statement in node.body:
            yield from _walk(statement, False, inside)
        return
    if isinstance(node, ast.FunctionDef):
        yield from _of_function(node, around)
        return
    if isinstance(node, ast.stmt):
        around = replace(around, statement=ast.unparse(_head(node)).split("\n")[0])
    if isinstance(node, (ast.expr, ast.stmt, ast.Slice)) and hasattr(node, "lineno"):
        yield node, asked, around
    conditions = [getattr(node, "test", None), *getattr(node, "ifs", [])]
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "decorator_list", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not (isinstance(node, ast.Lambda) and name == "args"):
                    yield from _walk(child, any(child is one for one in conditions), around)


def _of_function(node: ast.FunctionDef, around: Surroundings) -> Iterator[tuple[Any, bool, Surroundings]]:
    a = node.args
    params = [one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs) if one.arg not in ("self", "cls")]
    names = around.names | _next_names(params) | _attributes(node)
    inside = Surroundings((*around.function, node.name), f"def {node.name}", names)
    positional = (*a.posonlyargs, *a.args)
    given = [*zip(positional[len(positional) - len(a.defaults) :], a.defaults), *zip(a.kwonlyargs, a.kw_defaults)]
    for one, default in given:
        if default is not None:
            statement = f"def {node.name}(..., {one.arg}={ast.unparse(default)})"
            yield from _walk(default, False, replace(inside, statement=statement, names={}))
    for statement in node.body:
        yield from _walk(statement, False, inside)


def _is_about_types(node: ast.AST) -> bool:
    """Whether it is a docstring, an alias of types or an import for the type checker, which change no result."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return bool(re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", node.targets[0].id))
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("cast", "TypeVar")
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _head(node: ast.stmt) -> ast.stmt:
    """A compound statement without its body."""
    parts = [name for name in ("body", "orelse", "finalbody", "handlers", "cases") if hasattr(node, name)]
    if not parts:
        return node
    if "body" not in parts or "handlers" in parts:
        return ast.Pass()
    fields = dict(ast.iter_fields(node)) | {name: [] for name in parts} | {"body": [ast.Pass()]}
    return ast.copy_location(type(node)(**fields), node)


def _next_names(names: list[str]) -> dict[str, str]:
    """Each name with the next one, the last with the first."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, distinct[1:] + distinct[:1])) if len(distinct) > 1 else {}


def _attributes(function: ast.FunctionDef) -> dict[str, str]:
    """Each attribute with the next attribute of this object that the function reads; methods only with methods."""
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    groups: dict[tuple[str, bool], list[str]] = {}
    for node in ast.walk(function):
        read = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load)
        if read and node.value.id != "np":
            groups.setdefault((node.value.id, id(node) in called), []).append(ast.unparse(node))
    return {name: other for group in groups.values() for name, other in _next_names(group).items()}


def _imported(tree: ast.Module) -> dict[str, str]:
    """Each imported name with the next name of the same line: SGD for Adam, Adam for AdamW."""
    lines = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    lines = [node for node in lines if (node.module or "").startswith("numpy_attention")]
    return {a: b for node in lines for a, b in _next_names([one.asname or one.name for one in node.names]).items()}
