"""A file is imported before it is graded, and whatever it does then is said in plain words."""

import json
from io import StringIO
from pathlib import Path

import pytest

from numpy_attention.grade import worker
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.run import main
from numpy_attention.grade.worker import grade_path
from tests.grade.hand_in import FOLDER, grade


@pytest.mark.parametrize(("before", "words"), [
    ("import numpi\n", "cannot be imported: No module named 'numpi' (line 1: import numpi)"),
    ("def softmax(:\n", "is no Python yet: invalid syntax, line 1"),
    ("1 / 0\n", "stops while it is imported, with ZeroDivisionError"),
    ("import os\nos._exit(3)\n", "ended Python itself"),
    ("raise SystemExit(5)\n", "stops while it is imported, with SystemExit"),
])
def test_a_file_that_cannot_be_imported_gets_a_plain_explanation(tmp_path: Path, before: str, words: str) -> None:
    code, said = grade(tmp_path, "softmax", "pass", before=before)
    assert code == 1
    assert words in said
    assert "Traceback" not in said


def test_a_file_without_the_function_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "softmax_mine.py"
    file.write_text("def softmax(x):\n    pass\n")
    out = StringIO()
    assert main([str(file)], stream=out) == 1
    assert "must define the function softmax_backward" in out.getvalue()


def test_what_the_file_prints_is_shown(tmp_path: Path) -> None:
    _, said = grade(tmp_path, "softmax", "print('here', dy.shape)\n    return dy")
    assert "The file printed:" in said
    assert "here (" in said


def test_the_answer_is_left_as_json_with_what_the_file_printed(tmp_path: Path) -> None:
    file = tmp_path / "softmax.py"
    text = (FOLDER / "softmax.py").read_text()
    file.write_text("for i in range(20): print('line', i)\n" + text)
    worker.main(str(file), "softmax", str(tmp_path / "answer"), str(tmp_path / "where"), "60")
    left = json.loads((tmp_path / "answer").read_text())
    assert (left["exercise"], left["state"]) == ("softmax", "to do")
    assert "    line 11" in left["lines"]
    assert left["lines"][-1].strip() == "... and 8 lines more"


def test_a_class_where_a_function_is_needed_and_the_other_way_round(tmp_path: Path) -> None:
    file = tmp_path / "adam.py"
    file.write_text("def Adam(): pass\n")
    assert "must define the class Adam" in grade_path(file, EXERCISES["adam"]).text
