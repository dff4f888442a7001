"""A file is imported and graded; the tutor explains every problem of the import."""

from pathlib import Path

import pytest

from numpy_attention.tutor import child
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.result import Grade
from tests.tutor.hand_in import RIGHT, written


def graded(file: Path) -> Grade:
    return child.grade_here(file, EXERCISES[file.stem])


def test_right_answer_passes_and_may_import_modules_of_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_helper.py").write_text("print('from the helper')\n")
    grade = graded(written(tmp_path, "softmax", RIGHT, before="import my_helper\n"))
    assert (grade.state, grade.passed, grade.of) == ("right", 4, 4)
    assert capsys.readouterr().out == "from the helper\n"


@pytest.mark.parametrize(("before", "words"), [
    ("import numpi\n", "softmax.py cannot be imported: No module named 'numpi' (line 1: import numpi)"),
    ("def softmax(:\n", "softmax.py is not valid Python: invalid syntax, line 1: def softmax(:"),
    ("1 / 0\n", "raises an error when it is imported, ZeroDivisionError: division by zero (line 1: 1 / 0)"),
    ("raise SystemExit(5)\n", "raises an error when it is imported, SystemExit: 5 (line 1: raise SystemExit(5))"),
])
def test_failed_import_is_explained(tmp_path: Path, before: str, words: str) -> None:
    grade = graded(written(tmp_path, "softmax", before=before))
    assert grade.state == "broken"
    assert words in grade.text
    assert grade.summary == grade.text.strip()


@pytest.mark.parametrize("data", ["x = 1\n".encode("utf-16"), b"# coding: utf-99\n"])
def test_file_that_is_not_text_is_explained(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "softmax.py"
    file.write_bytes(data)
    grade = graded(file)
    assert grade.state == "broken"
    assert grade.text.startswith("  softmax.py is not a text that Python can read (")
    assert grade.text.endswith("): save it again as plain text in UTF-8")


@pytest.mark.parametrize(("name", "text", "missing"), [
    ("softmax", "def softmax(x):\n    pass\n", "the function softmax_backward"),
    ("adam", "def Adam(): pass\n", "the class Adam"),
])
def test_missing_function_or_class_is_named(tmp_path: Path, name: str, text: str, missing: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    assert graded(file).text == f"  {name}.py must define {missing}; was it renamed or deleted?"


def test_error_in_a_function_names_the_innermost_line_of_the_file(tmp_path: Path) -> None:
    after = "def helper(dy):\n    return dy[99]\n"
    grade = graded(written(tmp_path, "softmax", "return helper(dy)", after=after))
    assert grade.state == "broken"
    text = " ".join(grade.text.split())
    assert "stopped with IndexError: index 99 is out of bounds" in text
    assert ": return dy[99])" in text
