"""Three hints for each exercise, from where to look to almost the answer."""


import pytest
from numpy_attention.grade.hints import HINTS

from numpy_attention.catalogue.table import EXERCISES


@pytest.mark.parametrize("name", EXERCISES)
def test_there_are_three_hints_and_none_repeats(name: str) -> None:
    hints = EXERCISES[name].hints
    assert len(set(hints)) == 3
    assert all(len(hint) > 40 and hint.endswith((".", ")", "?")) for hint in hints)


def test_hints_are_for_exercises_and_every_exercise_has_some() -> None:
    assert HINTS.keys() == EXERCISES.keys()


def test_a_hint_of_several_lines_is_one_sentence_after_the_other() -> None:
    assert "  " not in "".join(hint for hints in HINTS.values() for hint in hints)
    assert HINTS["softmax"][0].endswith("the slope of y_i for x_j is y_i ([i = j] - y_j).")
