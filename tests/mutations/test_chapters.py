"""Every operator of the chapters: a few chapters in every run, all of them in the slow one."""

import ast
from types import SimpleNamespace

import pytest

from tests.mutations.changes import Mutation
from tests.mutations.chapters import CHAPTERS, killed_by, mutations, source_of
from tests.mutations.explained import OF_CHAPTERS, reason_for, ways_to_say
from tests.mutations.values import VALUES, stands_in

QUICK = ("linear", "softmax", "heads", "edits")
IN_TURN = [pytest.param(chapter, marks=() if chapter in QUICK else pytest.mark.slow) for chapter in CHAPTERS]


@pytest.mark.parametrize("chapter", IN_TURN)
def test_a_changed_operator_is_noticed_or_changes_no_result(chapter: str) -> None:
    """And the unchanged chapter passes: else every mutation would be killed for the wrong reason."""
    source = source_of(chapter)
    tree = ast.parse(source.read_text("utf-8"))
    file = f"{source.parent.name}/{chapter}"
    assert killed_by(Mutation(file, "", 0, "none", "", "", tree, tree, tree)) == ""
    # what is explained is not run: to survive takes longest of all
    asked = (one for one in mutations(chapter) if not reason_for(one))
    assert [(one.place, one.line, one.change) for one in asked if not killed_by(one)] == []


def test_every_chapter_is_mutated() -> None:
    counts = {chapter: sum(1 for _ in mutations(chapter)) for chapter in CHAPTERS}
    assert all(counts.values())
    assert {*QUICK} < counts.keys()


def test_every_explained_change_is_still_a_mutation() -> None:
    known = {(one.place, said) for chapter in CHAPTERS for one in mutations(chapter) for said in ways_to_say(one)}
    said = {(one.place, change) for one in OF_CHAPTERS for change in one.changes}
    assert said - known == set()


def test_a_trial_of_values_is_that_of_the_module_that_defines_the_name() -> None:
    def thing() -> None: ...

    thing.__module__ = "here"
    assert stands_in(SimpleNamespace(__name__="here", thing=thing), "thing")
    assert not stands_in(SimpleNamespace(__name__="elsewhere", thing=thing), "thing")
    assert not stands_in(SimpleNamespace(__name__="here"), "thing")
    assert VALUES
