"""A mutation is one change of the source; the rest of the file is unchanged."""

import ast
import inspect

import pytest

from tests.mutations.places import token_mutations

ALL_KINDS = """
from numpy_attention.training.optimizers import SGD, Adam

def f(a, b, c=3, flag=True):
    if flag and a < b:
        total += a % b
        note(a)
    for one in a[1:]:
        if one is None:
            continue
    x = g(b, a, axis=-1, out=b).T
    y = [max(a, b) for one in b if not one]
    return a.low - a.high, Adam(x * y)
"""


def changes_of(source: str) -> set[tuple[str, str]]:
    return {(one.kind, one.change) for one in token_mutations("part/file", source)}


@pytest.mark.parametrize(
    "change",
    [
        ("number", "3 -> 6"), ("number", "3 -> 2"), ("number", "1 -> 2"), ("boolean", "True -> False"),
        ("and/or", "flag and a < b -> flag or a < b"), ("and/or", "flag and a < b -> flag"),
        ("condition", "flag and a < b -> not (flag and a < b)"), ("compare", "a < b -> a <= b"),
        ("compare", "one is None -> one is not None"), ("operator", "a % b -> a // b"),
        ("sign", "total += a % b -> total -= a % b"), ("term", "total += a % b -> pass"), ("line", "note(a) -> pass"),
        ("slice", "1: -> :"), ("line", "continue -> break"),
        ("axis", "g(b, a, axis=-1, out=b) -> g(b, a, axis=0, out=b)"),
        ("argument", "g(b, a, axis=-1, out=b) -> g(b, a, axis=-1)"),
        ("order", "g(b, a, axis=-1, out=b) -> g(a, b, axis=-1, out=b)"),
        ("transpose", "g(b, a, axis=-1, out=b).T -> g(b, a, axis=-1, out=b)"), ("call", "max(a, b) -> min(a, b)"),
        ("sign", "not one -> one"), ("name", "a -> b"), ("name", "Adam -> SGD"), ("name", "a.low -> a.high"),
        ("sign", "a.low - a.high -> a.low + a.high"), ("term", "a.low - a.high -> a.low"), ("factor", "x * y -> x / y"),
        ("order", "return (a.low - a.high, Adam(x * y)) -> return (Adam(x * y), a.low - a.high)"),
    ],
    ids=lambda change: change[1],
)
def test_every_kind_of_change_occurs(change: tuple[str, str]) -> None:
    assert change in changes_of(ALL_KINDS)


def test_mutation_changes_exactly_one_line() -> None:
    before = ast.unparse(ast.parse(ALL_KINDS)).splitlines()
    for mutation in token_mutations("part/file", ALL_KINDS):
        after = ast.unparse(mutation.tree).splitlines()
        assert len(after) == len(before)
        assert sum(a != b for a, b in zip(after, before, strict=True)) == 1, mutation.name


def test_docstrings_messages_and_types_are_not_changed() -> None:
    source = '''
    """Words, 1 + 1."""
    from typing import TYPE_CHECKING
    Given = dict[str, int] | None
    def f(a: int | None, b: "list[int]") -> int | None:
        """More words, 1 + 1."""
        raise ValueError(f"{a + 1} is more than {b - 1}")
    '''
    assert changes_of(inspect.cleandoc(source)) == set()


def test_name_does_not_depend_on_lines_above() -> None:
    names = {one.name for one in token_mutations("part/file", ALL_KINDS)}
    grown = ALL_KINDS.replace("def f", "LIMIT = 7\n\ndef first(a, b):\n    return a < b\n\ndef f")
    assert names < {one.name for one in token_mutations("part/file", grown)}


def test_equal_changes_of_one_line_have_different_names() -> None:
    names = [one.name for one in token_mutations("part/file", "def f(a, b):\n    return a + a + a\n")]
    assert len(set(names)) == len(names) > 3
