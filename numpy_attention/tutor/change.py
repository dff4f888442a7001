"""Run the source of a module again with a few lines changed: that is how a known mistake is made.

    changed_module(module, edits, "sum_without_weights").softmax_backward

The lines that an edit replaces must occur exactly once in the function. If you change a chapter, a test names the
mistakes that you must write again.
"""

import ast
import linecache
import types
from collections.abc import Iterable
from typing import Any

from numpy_attention.tutor.page import Edit


def module_of(text: str, name: str, file: str) -> types.ModuleType:
    """A module with this source. `linecache` gets the source too, so that the checker can quote its lines."""
    module = types.ModuleType(name)
    module.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))
    return module


def changed_module(
    module: types.ModuleType, edits: Iterable[Edit], mistake: str, page: str = ""
) -> types.ModuleType:
    """The module with the edits.

    Raises: ValueError for an edit that does not fit; the message names the page, its line and the mistake.
    """
    file = str(module.__file__)
    lines = "".join(linecache.getlines(file)).splitlines()
    for edit in edits:
        here = f"pages/{page}.md, line {edit.line}: {mistake}"
        function = _function(lines, edit.where)
        if function is None:
            raise ValueError(f"{here}: there is no function {edit.where}")
        size, end = len(edit.old), function.end_lineno or 0
        places = [i for i in range(function.lineno - 1, end - size + 1) if size and lines[i : i + size] == edit.old]
        if len(places) != 1:
            what = "\n".join(edit.old)
            raise ValueError(
                f"{what}\n{here}: these lines must occur exactly once in {edit.where}, but occur {len(places)} times")
        lines[places[0] : places[0] + size] = edit.new
    try:
        return module_of("\n".join(lines) + "\n", module.__name__, f"<{mistake}>")
    except SyntaxError as error:
        raise ValueError(f"pages/{page}.md: {mistake}: the new lines are not valid Python: {error}") from error


def with_functions_of(cls: type, changed: Iterable[types.ModuleType]) -> type:
    """A subclass with the functions of the classes of the same names in the changed modules."""
    functions: dict[str, Any] = {}
    by_name = {module.__name__: module for module in changed}
    for base in reversed(cls.__mro__):
        module = by_name.get(base.__module__)
        if module is None:  # its methods hide those of the changed classes below it
            functions = {name: made for name, made in functions.items() if name not in vars(base)}
            continue
        for name, made in vars(getattr(module, base.__name__)).items():
            if isinstance(made, types.FunctionType):
                functions[name] = _with_class(made, base)
    return type(cls.__name__, (cls,), functions)


def _with_class(f: types.FunctionType, cls: type) -> types.FunctionType:
    """The method with `cls` as the class that super() uses."""
    if "__class__" not in f.__code__.co_freevars:
        return f
    cells = [types.CellType(cls) if name == "__class__" else cell
             for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ())]
    copy = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, tuple(cells))
    copy.__kwdefaults__ = f.__kwdefaults__
    return copy


def _function(lines: list[str], where: str) -> ast.stmt | None:
    """The function or method with this name; the last one, since a solution defines its function again."""
    body = ast.parse("\n".join(lines)).body
    found: ast.stmt | None = None
    for name in where.split("."):
        found = next((one for one in reversed(body) if getattr(one, "name", "") == name), None)
        body = getattr(found, "body", [])
    return found
