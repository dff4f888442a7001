"""A mutant says what is wrong with it, and takes the place of what it spoils in a copy."""

from typing import Any

import numpy as np
import pytest
from numpy_attention.gallery.registry import backward_of

from numpy_attention.catalogue import MISTAKES, mutants_of
from numpy_attention.catalogue.table import CATALOGUE, TRIALS


def test_every_mutant_says_why_it_is_wrong_and_how_it_hides() -> None:
    known = {entry.covers for entry in CATALOGUE.values()} | set(TRIALS)
    for mutant in MISTAKES.values():
        assert mutant.covers in known, f"{mutant.name} belongs to {mutant.covers}, which nothing checks"
        for text in (mutant.wrong, mutant.hides):
            assert text.endswith("."), mutant.name
            assert len(text) > 20, mutant.name


def test_a_mutant_leaves_the_catalogue_as_it_was() -> None:
    entry = CATALOGUE["layer_norm"]
    spoiled = MISTAKES["gamma_left_out"].spoil(entry)
    assert spoiled.op_backward is not entry.op_backward
    assert CATALOGUE["layer_norm"].op_backward is entry.op_backward
    case = entry.case(0)
    assert not np.all(case.inputs["gamma"] == 1.0)


def test_a_mutant_that_does_not_say_how_it_hides_is_refused() -> None:
    def nameless(dy: np.ndarray, cache: Any) -> None:
        """It is wrong, and that is all."""

    with pytest.raises(AssertionError, match="how it goes unnoticed"):
        backward_of("softmax")(nameless)
    assert "nameless" not in MISTAKES


def test_a_name_is_given_once() -> None:
    with pytest.raises(AssertionError, match="two mutants are called zero"):
        backward_of("softmax")(MISTAKES["zero"].op_backward)


def test_mutants_are_found_by_what_they_spoil() -> None:
    assert {mutant.name for mutant in mutants_of("embedding")} == {"last_id_wins", "buffered_plus"}


def test_a_layer_is_spoiled_in_one_method_and_keeps_the_others() -> None:
    case = MISTAKES["residual_twice"].spoil(CATALOGUE["EncoderBlock: post-norm"]).case(0)
    cls = type(case.layer)
    assert cls.__name__ == "EncoderBlock"
    assert cls.backward is MISTAKES["residual_twice"].stand_in
    assert cls.forward is cls.__mro__[1].forward
