"""A slip has a name of its own, the words of its docstring, and a place in some exercise."""

import pytest

from numpy_attention.gallery import MUTANTS
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.slips import SLIPS, slips_of
from numpy_attention.grade.slips.registry import slip


def test_no_slip_has_the_name_of_another_or_of_a_mutant() -> None:
    assert not SLIPS.keys() & MUTANTS.keys()
    with pytest.raises(AssertionError, match="two slips are called sign_of_the_sum"):

        @slip("softmax")
        def sign_of_the_sum() -> None:
            """It is there already.

            Hides: not at all.
            """


def test_every_slip_is_a_wrong_answer_of_some_exercise() -> None:
    assert SLIPS.keys() <= {mutant.name for exercise in EXERCISES.values() for mutant in exercise.mutants}


def test_the_words_are_those_of_the_docstring() -> None:
    known = {mutant.name: mutant for mutant in slips_of("draw")}
    assert known.keys() == {"zero_drawn", "always_the_likeliest"}
    assert known["always_the_likeliest"].wrong.startswith("u takes no part")
    assert known["always_the_likeliest"].hides == "it is right more often than any other single answer."
