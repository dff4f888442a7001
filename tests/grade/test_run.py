"""`grade` as a student meets it: in a process of its own, with a limit on its time, and in plain words."""

import re
import shutil
from io import StringIO
from pathlib import Path

import pytest

from numpy_attention.cli import main as command_line
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.run import main

FOLDER = Path(__file__).parents[2] / "tutorials" / "exercises"


def grade(tmp_path: Path, name: str, backward: str, time_limit: float = 60.0, before: str = "") -> tuple[int, str]:
    """Hand in the exercise with `raise NotImplementedError` replaced."""
    text = (FOLDER / f"{name}.py").read_text()
    file = tmp_path / f"{name}.py"
    file.write_text(before + text.replace("raise NotImplementedError", backward, 1))
    out = StringIO()
    code = main([str(file)], time_limit=time_limit, stream=out)
    return code, out.getvalue()


@pytest.mark.parametrize("name", ["softmax", "multi_head_attention", "adam"])
def test_the_stub_fails_kindly(tmp_path: Path, name: str) -> None:
    code, said = grade(tmp_path, name, "raise NotImplementedError")
    assert code == 1
    assert "not written yet" in said
    assert "What will be checked" in said
    assert "--hint 1" in said
    assert "Traceback" not in said


def test_a_right_answer_passes(tmp_path: Path) -> None:
    code, said = grade(tmp_path, "softmax", "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))")
    assert code == 0
    assert "All 6 properties hold" in said


def test_a_wrong_answer_gets_its_numbers_its_diagnosis_and_its_name(tmp_path: Path) -> None:
    code, said = grade(tmp_path, "softmax", "return y * (1 - y) * dy")
    assert code == 1
    parts = ("smallest example", "x = [", "dx, yours:", "dx, differences:", "likely mistake", "`diagonal_only`")
    for words in parts:
        assert words in said


def test_a_gradient_wrong_in_a_late_digit_is_shown_with_that_digit(tmp_path: Path) -> None:
    backward = "t = np.tanh(u); return dy * ((1 + t) / 2 + x * (1 - t * t) / 2 * C * (1 + 0.044715 * x * x))"
    code, said = grade(tmp_path, "gelu", backward)
    assert code == 1
    shown = re.findall(r"dx, (?:yours|differences): +(.*)", said)
    assert len(set(shown)) == 2


@pytest.mark.parametrize(("backward", "words"), [
    ("pass", "returned None; is there a `return`"),
    ("return dy @ w.T, x.T @ dy", "returned 2 gradients, expected 3: dx"),
    ("return dy @ w.T, np.einsum('...i,...j->...ij', x, dy), dy.sum(axis=tuple(range(dy.ndim - 1)))",
     "the sum over the batch axes"),
    ("return (dy @ w.T).tolist(), w, dy", "dx must be an array of shape"),
    ("return (dy @ w.T).astype(int), w, dy", "dx must hold floats, got int64"),
    ("return dy[99], w, dy", "stopped with IndexError"),
    ("return dy @ w.T, (x[..., None] @ dy[..., None, :]).sum(tuple(range(dy.ndim - 1))), dy.sum()",
     "db must be an array of shape (1,), got a single number"),
    ("rows = dy.reshape(-1, w.shape[1])\n    return rows @ w.T, x.reshape(-1, w.shape[0]).T @ rows, rows.sum(0)",
     "is missing, or a reshape to the shape of the argument"),
    ("rows = dy.reshape(-1, w.shape[1])\n    return dy @ w.T, rows.sum(0), x.reshape(-1, w.shape[0]).T @ rows",
     "the right ones in another order"),
])  # fmt: skip
def test_an_answer_of_the_wrong_form_gets_a_plain_explanation(tmp_path: Path, backward: str, words: str) -> None:
    code, said = grade(tmp_path, "linear", backward)
    assert code == 1
    assert words in " ".join(said.split()), said
    assert "Traceback" not in said


def test_a_transpose_of_too_many_axes_is_explained(tmp_path: Path) -> None:
    _, said = grade(tmp_path, "attention", "return dy @ v.T, k, v")
    assert "swapaxes(-1, -2) turns the last two alone" in said


@pytest.mark.parametrize("left", ["p", "self.parameters[name]"])
def test_an_optimizer_that_makes_new_arrays_is_told_so(tmp_path: Path, left: str) -> None:
    step = "for name, p in self.parameters.items():\n            g = grads[name]\n            "
    code, said = grade(tmp_path, "adam", f"{step}{left} = p - self.learning_rate * g / (np.abs(g) + self.eps)")
    assert code == 1
    assert "the arrays that were handed over have not moved" in said


def test_an_endless_loop_is_stopped_and_its_line_is_named(tmp_path: Path) -> None:
    code, said = grade(tmp_path, "gelu", "while True:\n        x = x + 0", time_limit=3.0)
    assert code == 1
    assert "No answer after 3 seconds" in said
    assert "in gelu_backward, line" in said


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


def test_hints_unfold_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FOLDER / "softmax.py")
    for number in (1, 2, 3):
        assert command_line(["grade", file, "--hint", str(number)]) == 0
        said = capsys.readouterr().out
        assert EXERCISES["softmax"].hints[number - 1] in said
        assert (f"--hint {number + 1}" in said) == (number < 3)
    assert command_line(["grade", file, "--hint", "4"]) == 2
    assert "must be 1 to 3" in capsys.readouterr().err


def test_the_table_shows_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("softmax", "linear", "adam"):
        shutil.copy(FOLDER / f"{name}.py", tmp_path)
    file = tmp_path / "softmax.py"
    right = "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))"
    file.write_text(file.read_text().replace("raise NotImplementedError", right))
    file = tmp_path / "linear.py"
    file.write_text(file.read_text().replace("raise NotImplementedError", "return dy, w, dy"))
    assert command_line(["grade", "--all", str(tmp_path)]) == 1
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "done       6 of 6" in lines["softmax"]
    assert "wrong" in lines["linear"]
    assert "to do" in lines["adam"]
    assert "no file" in lines["gelu"]
    assert lines["1"] == f"1 of {len(EXERCISES)} done"


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "which file?"),
    (["no_such_file.py"], "there is no file no_such_file.py"),
    ([__file__], "is no exercise; one of softmax"),
    (["--all", __file__], "--all takes one folder"),
])
def test_unusable_input_is_one_clear_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["grade", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_every_exercise_is_a_file_and_every_file_an_exercise() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == set(EXERCISES)
    for name in EXERCISES:
        text = (FOLDER / f"{name}.py").read_text()
        assert "raise NotImplementedError" in text
        assert f"python -m numpy_attention grade {name}.py --hint 1" in text
