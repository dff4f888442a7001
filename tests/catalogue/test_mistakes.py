"""Every known mistake is caught: in words that lead to it, and for what is wrong, not for how it was planted.

That the tutor calls the mistakes of an exercise by their names: tests/grade/test_recognize.py.
"""

import pytest

from numpy_attention.catalogue import GALLERY, MISTAKES, catch
from numpy_attention.catalogue.table import EXERCISES

STOPS = ("TypeError", "AttributeError", "NameError", "positional argument")


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_caught_in_words_that_lead_to_it(name: str) -> None:
    mistake = MISTAKES[name]
    said = catch(mistake)
    assert said, f"{name} gets through: {mistake.wrong}"
    assert mistake.says in said, said
    assert not any(word in said for word in STOPS), said
    if mistake.says:
        assert "by no simple rule" not in said, said
        assert len(said.splitlines()) <= 24, "at most a screen"


def test_what_the_checker_need_not_name_the_tutor_does() -> None:
    told = {mistake.name for exercise in EXERCISES.values() for mistake in exercise.mistakes}
    assert set(MISTAKES) - set(GALLERY) <= told
