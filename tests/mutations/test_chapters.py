"""Mutations of every operator of the chapters: a few chapters in every run, all chapters in the slow run."""

import ast
from types import SimpleNamespace

import pytest

from tests.mutations.changes import Mutation
from tests.mutations.chapters import CHAPTERS, killed_by, mutations, source_of
from tests.mutations.explained import OF_CHAPTERS, descriptions, reason_for
from tests.mutations.values import VALUES, is_defined_in

QUICK = ("linear", "softmax", "heads", "edits")
ALL_CHAPTERS = [pytest.param(chapter, marks=() if chapter in QUICK else pytest.mark.slow) for chapter in CHAPTERS]


@pytest.mark.parametrize("chapter", ALL_CHAPTERS)
def test_changed_operator_is_noticed_or_explained(chapter: str) -> None:
    """The unchanged chapter must pass; otherwise every mutation would be killed for a wrong reason."""
    source = source_of(chapter)
    tree = ast.parse(source.read_text("utf-8"))
    file = f"{source.parent.name}/{chapter}"
    assert killed_by(Mutation(file, "", 0, "none", "", "", tree, tree, tree)) == ""
    # explained mutations do not run: a mutation that survives takes the longest time
    asked = (one for one in mutations(chapter) if not reason_for(one))
    assert [(one.place, one.line, one.change) for one in asked if not killed_by(one)] == []


def test_every_chapter_has_mutations() -> None:
    counts = {chapter: sum(1 for _ in mutations(chapter)) for chapter in CHAPTERS}
    assert all(counts.values())
    assert {*QUICK} < counts.keys()


def test_every_explained_change_is_still_a_mutation() -> None:
    known = {(one.place, said) for chapter in CHAPTERS for one in mutations(chapter) for said in descriptions(one)}
    said = {(one.place, change) for one in OF_CHAPTERS for change in one.changes}
    assert said - known == set()


def test_is_defined_in_accepts_only_the_defining_module() -> None:
    def thing() -> None: ...

    thing.__module__ = "here"
    assert is_defined_in(SimpleNamespace(__name__="here", thing=thing), "thing")
    assert not is_defined_in(SimpleNamespace(__name__="elsewhere", thing=thing), "thing")
    assert not is_defined_in(SimpleNamespace(__name__="here"), "thing")
    assert VALUES
