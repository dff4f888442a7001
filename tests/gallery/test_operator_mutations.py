"""Operator mutations: four chapters in every run, all of them in the slow one."""

import ast

import pytest

from tests.gallery.explained import EXPLAINED, reason_for
from tests.gallery.operator_mutations import CHAPTERS, OPS, ROOMS, killed_by, mutations, source_of
from tests.mutations.changes import Mutation


def survivors(chapter: str) -> list[Mutation]:
    return [mutation for mutation in mutations(chapter) if not killed_by(mutation)]


@pytest.mark.parametrize("chapter", ["linear", "softmax", "heads", "edits"])
def test_a_changed_operator_is_noticed(chapter: str) -> None:
    assert survivors(chapter) == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_unchanged_chapter_passes(chapter: str) -> None:
    """Else every mutation would be killed for the wrong reason."""
    tree = ast.parse(source_of(chapter).read_text("utf-8"))
    function = {"attention": "scaled_dot_product_attention", "edits": "edit"}.get(chapter, chapter)
    said = killed_by(Mutation(chapter, function, 0, "none", "", "", tree, tree, tree))
    assert said == ""


def test_every_chapter_but_the_checks_of_arguments_is_mutated() -> None:
    assert {path.stem for path in OPS.glob("*.py")} - {"__init__", "attention_arguments"} == {
        chapter for chapter in CHAPTERS if ROOMS[chapter] == "ops"}


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_changed_operator_is_noticed_or_changes_no_result(chapter: str) -> None:
    # what is explained is not run: to survive takes longest of all
    asked = (one for one in mutations(chapter) if not reason_for(one.place, one.change))
    assert [(one.place, one.line, one.change) for one in asked if not killed_by(one)] == []


def test_every_explained_change_is_still_a_mutation() -> None:
    known = {(one.place, one.change) for chapter in CHAPTERS for one in mutations(chapter)}
    for explained in EXPLAINED:
        for change in explained.changes:
            assert (explained.place, change) in known
