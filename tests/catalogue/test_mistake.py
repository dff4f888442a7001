"""A mistake has an explanation; it replaces the right function only in a copy of an entry."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue import MISTAKES, mistakes_of
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.catalogue.table import CATALOGUE, EXERCISES, TRIALS


def test_every_mistake_says_why_it_is_wrong_and_how_it_hides() -> None:
    known = {entry.covers for entry in CATALOGUE.values()} | set(TRIALS)
    known |= {subject for exercise in EXERCISES.values() for subject in exercise.subjects}
    for mistake in MISTAKES.values():
        assert mistake.covers in known, f"{mistake.name} belongs to {mistake.covers}, which has no entry and no trial"
        for text in (mistake.wrong, mistake.hides):
            assert text.endswith("."), mistake.name
            assert len(text) > 10, mistake.name


def test_a_mistake_leaves_the_catalogue_as_it_was() -> None:
    entry = CATALOGUE["layer_norm"]
    wrong = MISTAKES["gamma_left_out"].spoil(entry)
    assert wrong.op_backward is not entry.op_backward
    assert CATALOGUE["layer_norm"].op_backward is entry.op_backward
    case = entry.case(0)
    assert not np.all(case.inputs["gamma"] == 1.0)


def test_a_mistake_that_does_not_say_how_it_hides_is_refused() -> None:
    def incomplete(dy: np.ndarray, cache: Any) -> None:
        """A docstring without the second paragraph."""

    with pytest.raises(AssertionError, match="why a test may miss the mistake"):
        backward_of("softmax")(incomplete)
    assert "incomplete" not in MISTAKES


def test_a_name_is_given_once() -> None:
    with pytest.raises(AssertionError, match="two mistakes have the name zero"):
        backward_of("softmax")(MISTAKES["zero"].op_backward)


def test_mistakes_are_found_by_what_they_spoil() -> None:
    assert {mistake.name for mistake in mistakes_of("draw")} == {"zero_drawn", "always_the_likeliest"}
    assert {"last_id_wins", "buffered_plus"} <= {mistake.name for mistake in mistakes_of("embedding")}
    assert MISTAKES["always_the_likeliest"].wrong.startswith("u is not used")
    assert MISTAKES["always_the_likeliest"].hides == "it is right more often than any other constant answer."


def test_a_layer_is_spoiled_in_one_method_and_keeps_the_others() -> None:
    case = MISTAKES["residual_twice"].spoil(CATALOGUE["EncoderBlock: post-norm"]).case(0)
    cls = type(case.layer)
    assert cls.__name__ == "EncoderBlock"
    assert cls.backward is MISTAKES["residual_twice"].stand_in
    assert cls.forward is cls.__mro__[1].forward
