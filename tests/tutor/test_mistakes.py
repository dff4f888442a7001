"""The full check catches every known mistake, with the expected message, and not because of a Python error.

tests/tutor/test_recognize.py tests that the tutor recognizes the mistakes of an exercise.
"""

from typing import Any

import pytest

from numpy_attention.tutor import GALLERY, MISTAKES, catch
from numpy_attention.tutor.catalogue import EXERCISES

PYTHON_ERRORS = ("TypeError", "AttributeError", "NameError", "positional argument")


def marks(name: str) -> Any:
    """By default only some chapters: the diagnosis of all mistakes takes a minute."""
    return () if MISTAKES[name].covers in ("softmax", "linear", "causal_mask", "Adam") else pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in MISTAKES])
def test_full_check_catches_every_mistake_with_the_expected_message(name: str) -> None:
    mistake = MISTAKES[name]
    message = catch(mistake)
    assert message, f"the full check misses {name}: {mistake.wrong}"
    assert mistake.diagnosis in message, message
    assert not any(word in message for word in PYTHON_ERRORS), message
    if mistake.diagnosis:
        assert "no simple rule found" not in message, message
        assert len(message.splitlines()) <= 24, "the report must fit on a screen"


def test_mistakes_outside_the_gallery_belong_to_exercises() -> None:
    of_exercises = {mistake.name for exercise in EXERCISES.values() for mistake in exercise.mistakes}
    assert set(MISTAKES) - set(GALLERY) <= of_exercises
