"""What is raised in the other process is raised here, whatever its name and message."""

import pytest
from numpy_attention.grade.stopped import Stopped, stopped

from numpy_attention.grade.guard import NotYours


def test_it_is_what_it_was_and_knows_its_line() -> None:
    error = stopped({"error": ["KeyError", "LookupError"], "message": "'w'", "line": 4, "text": "a['w']"}, "adam.py")
    assert isinstance(error, KeyError)
    assert isinstance(error, Stopped)
    assert (str(error), type(error).__name__, error.place) == ("'w'", "KeyError", " (adam.py, line 4: a['w'])")


def test_an_unwritten_backward_and_a_refusal_stay_what_they_are() -> None:
    assert isinstance(stopped({"error": ["NotImplementedError"], "message": ""}, "a.py"), NotImplementedError)
    assert isinstance(stopped({"error": ["NotYours"], "message": "derive it", "refused": True}, "a.py"), NotYours)


@pytest.mark.parametrize("kinds", [
    ["AxisError", "ValueError"], ["UnicodeDecodeError", "UnicodeError", "ValueError"], ["SystemExit", "BaseException"],
    ["ExceptionGroup", "Exception"], ["print"], ["not a name", "ValueError"], [], "text", [None, 3], ["open", "dict"],
])
def test_any_name_gives_an_exception(kinds: object) -> None:
    error = stopped({"error": kinds, "message": "so"}, "a.py")
    assert isinstance(error, Exception)
    assert str(error) == "so"
    assert isinstance(error, ValueError) == (isinstance(kinds, list) and "ValueError" in kinds)


def test_a_message_is_made_fit_to_print() -> None:
    error = stopped({"error": ["ValueError"], "message": "a\x1b[31m\udc80\x07\nb" + "c" * 5000, "line": "no"}, "a.py")
    assert str(error).startswith("a\\x1b[31m\\udc80\\x07\nbccc")
    assert len(str(error)) < 2100
    assert error.place == ""
