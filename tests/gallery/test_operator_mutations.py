"""Operator mutations: three chapters in every run, all of them in the slow one."""

import ast

import pytest

from tests.gallery.operator_mutations import CHAPTERS, OPS, Mutation, killed_by, mutations

# Changes that change nothing: each with its reason in docs/gallery.md.
EQUIVALENT = {"linear": {"1 -> 2"}}  # reshape(-2, n) is reshape(-1, n)
SHARE = 0.94


def survivors(chapter: str) -> list[Mutation]:
    return [mutation for mutation in mutations(chapter) if not killed_by(mutation)]


@pytest.mark.parametrize("chapter", ["linear", "softmax", "heads"])
def test_a_changed_operator_is_noticed(chapter: str) -> None:
    alive = {f"{one.before} -> {one.after}" for one in survivors(chapter)}
    assert alive <= EQUIVALENT.get(chapter, set())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_unchanged_chapter_passes(chapter: str) -> None:
    """Else every mutation would be killed for the wrong reason."""
    tree = ast.parse((OPS / f"{chapter}.py").read_text())
    function = {"embedding": "embedding", "attention": "scaled_dot_product_attention"}.get(chapter, chapter)
    said = killed_by(Mutation(chapter, function, 0, "none", "", "", tree))
    assert said == ""


def test_every_chapter_but_the_checks_of_arguments_is_mutated() -> None:
    assert {path.stem for path in OPS.glob("*.py")} - {"__init__", "attention_arguments"} == set(CHAPTERS)


@pytest.mark.slow
def test_nearly_every_changed_operator_of_every_chapter_is_noticed() -> None:
    alive = [one for chapter in CHAPTERS for one in survivors(chapter)]
    count = sum(len(list(mutations(chapter))) for chapter in CHAPTERS)
    assert len(alive) <= (1 - SHARE) * count, [f"{one.chapter}:{one.line} {one.before} -> {one.after}" for one in alive]
