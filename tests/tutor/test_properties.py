"""Every op, layer and model has all properties."""

import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.strategies import sizes_of
from numpy_attention.tutor import catalogue, properties
from numpy_attention.tutor.catalogue import MISTAKES
from numpy_attention.tutor.entry import Entry
from tests.tutor import rules
from tests.tutor.plain import PLAIN

ENTRIES = list(catalogue.CATALOGUE.values())
FIRST = {entry.covers: entry.name for entry in reversed(ENTRIES)}
LARGE = (
    "GPT", "Seq2Seq", "TextEncoder", "SequenceClassifier", "Stack", "forward_with", "MultiHeadAttention",
    "EncoderBlock", "DecoderBlock",
)


def is_first_of_its_kind(entry: Entry) -> bool:
    """Whether an entry is small, or the first variant of a large layer or model."""
    return entry.covers not in LARGE or entry.name == FIRST[entry.covers]


def for_entries(every_variant: bool) -> pytest.MarkDecorator:
    """Run a test for all entries, or without the further variants of large layers and models."""
    entries = [entry for entry in ENTRIES if every_variant or is_first_of_its_kind(entry)]
    return pytest.mark.parametrize("entry", entries, ids=name_of)


def name_of(entry: Entry) -> str:
    """The name of an entry in the name of a test."""
    return entry.name.replace(" ", "-")


by_default_one_variant_of_each_large_layer = pytest.mark.parametrize("entry", [
    pytest.param(entry, id=name_of(entry), marks=() if is_first_of_its_kind(entry) else pytest.mark.slow)
    for entry in ENTRIES
])
ON_EACH_DRAW = (
    properties.dtype_is_kept, properties.nothing_is_changed, rules.gradients_share_no_memory,
    rules.strides_do_not_matter, rules.two_uses_do_not_disturb_each_other, rules.forward_matches_formula,
)
# A thousand draws of each entry take an hour on one core, see docs/checkers.md:
# NUMPY_ATTENTION_DRAWS=1000 python -m pytest -m slow tests/tutor/test_properties.py
DRAWS = int(os.environ.get("NUMPY_ATTENTION_DRAWS", "1"))


@by_default_one_variant_of_each_large_layer
def test_every_property_holds(entry: Entry) -> None:
    report = check(entry.case().problem(), sample=8, structure=False)  # `gradcheck` in .ci/run checks every element
    assert report.error <= 1e-12  # without elements on a corner
    for check_one in (*ON_EACH_DRAW, rules.wrong_calls_are_refused):
        check_one(entry, 0)


@pytest.mark.slow
@for_entries(every_variant=DRAWS > 1)
def test_every_property_holds_for_any_sizes(entry: Entry) -> None:
    check(entry.case(1, np.float32).problem(), 1)

    @settings(max_examples=2, deadline=None, database=None)
    @given(
        seed=st.integers(0, 2**16 - 1),
        sizes=sizes_of(entry.parsed, fixed=entry.fixed, at_least=entry.at_least, most=60)
    )
    def hold(seed: int, sizes: dict) -> None:
        for check_one in ON_EACH_DRAW:  # with equal sizes, a transposed array may have the right shape
            check_one(entry, seed, sizes)

    hold()


@pytest.mark.slow
@for_entries(every_variant=DRAWS > 1)
def test_no_false_alarm_in_many_draws(entry: Entry) -> None:
    """Even draws have sizes that all differ, odd draws any sizes from 1 to 4; a few draws check every element."""
    for number in range(1, DRAWS + 1):
        sizes = any_sizes(entry, np.random.default_rng([number, 17])) if number % 2 else None
        sample = None if number % 40 in (0, 9) else 24
        properties.gradients_agree_with_differences(entry, number, sizes, sample)


def any_sizes(entry: Entry, rng: np.random.Generator) -> dict[str, Any]:
    """Random sizes from 1 to 4, except those that the entry sets; smaller ones if the inputs have over 100 numbers."""
    names = [name for name in entry.parsed.size_names if name not in entry.fixed]
    for largest in (4, 4, 4, 3, 3, 2, 2, 1):
        sizes: dict[str, Any] = dict(entry.fixed)
        for name in names:
            if name == "...":
                sizes[name] = tuple(int(n) for n in rng.integers(1, largest + 1, rng.integers(0, 4)))
            else:
                least = entry.at_least.get(name, 1)
                sizes[name] = int(rng.integers(least, max(least, largest) + 1))
        if sum(math.prod(shape) for shape in entry.parsed.shapes(sizes).values()) <= 100:
            break
    return sizes


def test_every_op_with_a_wrong_forward_has_a_plain_formula() -> None:
    edited = {(mistake.covers, edit.where) for mistake in MISTAKES.values() for edit in mistake.edits}
    with_mistakes = {covers for covers, where in edited if covers == where}
    assert with_mistakes & {entry.covers for entry in ENTRIES} <= set(PLAIN)
