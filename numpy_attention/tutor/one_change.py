"""Which one change of a right solution gives the numbers of a wrong answer?

Most wrong answers differ from a right one in one place: a factor, a term or a transpose is left out, a sign is wrong,
another array is used, a limit is off by one. So this module changes one place of the page's solution after another, and
runs it. If the numbers are those of the student's answer on every draw, this change describes the mistake.

    def backward(dy, cache):            in `dh = dh + dy`, `dy` is left out
        dh = norm_backward(dn)          in `dx = attention_backward(dh)`, `dy` is used in place of `dh`
        dh = dh + dy                    in `dk[rows] += ...`, = is used in place of +=
        dx = attention_backward(dh)
"""

import ast
import copy
import itertools
import time
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from numpy_attention.tutor.exercise import Exercise
from numpy_attention.tutor.other_code import (
    Change,
    another_factor,
    first_line,
    names_in,
    other_expressions,
    other_names,
    other_statements,
)
from numpy_attention.tutor.page import exercise_texts

SECONDS = 4.0  # of the processor: then the search ends
MOST_LOOPS = 1000  # a changed `while` loop ends after so many rounds


def changed_solutions(
    exercise: Exercise, module: types.ModuleType, twice: bool = False
) -> Iterator[tuple[list[str], Any]]:
    """Each change in words, with the functions and classes that the exercise asks for; `module` has the solution.

    With `twice`, two changes at a time, but none of the names of variables.
    """
    for function in ast.parse(exercise_texts()[exercise.name].code).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        loops = any(isinstance(one, ast.While) for one in ast.walk(function))
        for words in _two_changes(function) if twice else ([one] for one in _changes(function)):
            names = {**vars(module), "rounds": itertools.count()}
            try:
                changed = _Limited().visit(copy.deepcopy(function)) if loops else function
                tree = ast.fix_missing_locations(ast.Module([changed], []))
                exec(compile(tree, "<changed solution>", "exec"), names)
            except (SyntaxError, ValueError, TypeError):
                continue
            made = names[function.name]
            for name, kind in exercise.needed.items():
                if kind == "class" and function.name in dir(names[name]):
                    names[name] = type(name, (names[name],), {function.name: made})
            yield words, SimpleNamespace(**{name: names[name] for name in exercise.needed})


class _Limited(ast.NodeTransformer):
    """Ends each `while` loop: a change can make it endless."""

    def visit_While(self, node: ast.While) -> ast.While:
        limit = ast.parse(f"next(rounds) < {MOST_LOOPS}", mode="eval").body
        node.test = ast.BoolOp(ast.And(), [limit, node.test])
        self.generic_visit(node)
        return node


def _changes(function: ast.FunctionDef) -> Iterator[str]:
    """Change the tree in one place after another; it is changed while the caller has the words."""
    yield from _simple_changes(function)
    names = names_in(function)
    yield from _in_expressions(function, lambda node, parent: other_names(node, names))
    yield from _in_expressions(function, lambda node, parent: another_factor(node, parent, names))


def _simple_changes(function: ast.FunctionDef) -> Iterator[str]:
    yield from other_statements(function)
    yield from _in_expressions(function, other_expressions)


def _two_changes(function: ast.FunctionDef) -> Iterator[list[str]]:
    for i, first in enumerate(_simple_changes(function)):
        for j, second in enumerate(_simple_changes(function)):  # to its end, so that it restores the tree
            if j < i:
                yield [first, second]


def _in_expressions(
    function: ast.FunctionDef, others: Callable[[ast.expr, ast.AST], Iterator[Change]]
) -> Iterator[str]:
    """Put other expressions in the place of each expression of the function."""
    for statement in [one for one in ast.walk(function) if isinstance(one, ast.stmt) and one is not function]:
        for parent in _own(statement):
            for field, value in list(ast.iter_fields(parent)):
                for i, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                    if not isinstance(node, ast.expr):
                        continue
                    line = first_line(statement)
                    for words, new in others(node, parent):
                        _put(parent, field, i, new)
                        yield f"in `{line}`, {words}"
                        _put(parent, field, i, node)


def _put(parent: ast.AST, field: str, i: int | None, node: ast.expr) -> None:
    if i is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[i] = node


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and its expressions, without the statements inside it."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from (one for one in ast.walk(child) if not isinstance(one, ast.expr_context | ast.operator))


def one_change(exercise: Exercise, module: types.ModuleType, agrees: Callable[[Any], bool]) -> list[str]:
    """The change, or the two changes, with which a solution `agrees` with the answer, in words; or an empty list."""
    for twice, seconds in ((False, SECONDS), (True, SECONDS / 2)):
        end = time.process_time() + seconds
        for words, made in changed_solutions(exercise, module, twice):
            if agrees(made):
                return words
            if time.process_time() > end:
                break
    return []
