"""A mistake has an explanation; it replaces the right function only in a copy of an entry."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue import MISTAKES
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.catalogue.table import CATALOGUE, EXERCISES, TRIALS


def test_every_mistake_has_both_explanations() -> None:
    known = {entry.covers for entry in CATALOGUE.values()} | set(TRIALS)
    known |= {subject for exercise in EXERCISES.values() for subject in exercise.subjects}
    for mistake in MISTAKES.values():
        assert mistake.covers in known, f"{mistake.name} belongs to {mistake.covers}, which has no entry and no trial"
        for text in (mistake.wrong, mistake.hides):
            assert text.endswith("."), mistake.name
            assert len(text) > 10, mistake.name


def test_refuses_mistake_without_second_explanation() -> None:
    def incomplete(dy: np.ndarray, cache: Any) -> None:
        """A docstring without the second paragraph."""

    with pytest.raises(AssertionError, match="why a test may miss the mistake"):
        backward_of("softmax")(incomplete)
    assert "incomplete" not in MISTAKES


def test_refuses_second_mistake_with_the_same_name() -> None:
    with pytest.raises(AssertionError, match="two mistakes have the name zero"):
        backward_of("softmax")(MISTAKES["zero"].op_backward)


def test_mistake_of_a_layer_replaces_only_one_method() -> None:
    case = MISTAKES["residual_twice"].spoil(CATALOGUE["EncoderBlock: post-norm"]).case(0)
    cls = type(case.layer)
    assert cls.__name__ == "EncoderBlock"
    assert cls.backward is MISTAKES["residual_twice"].stand_in
    assert cls.forward is cls.__mro__[1].forward
