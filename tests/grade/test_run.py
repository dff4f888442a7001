"""The command `grade`: it runs a file in another process with a time limit, and prints text for students."""

import shutil
from pathlib import Path

import pytest

from numpy_attention.app.main import main as command_line
from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.grade import process
from numpy_attention.grade.page import page_of
from numpy_attention.grade.run import GradeError
from tests.grade.hand_in import FOLDER, grade


@pytest.mark.parametrize("name", ["softmax", "multi_head_attention", "adam"])
def test_stub_is_not_written_yet(tmp_path: Path, name: str) -> None:
    code, output = grade(tmp_path, name, "raise NotImplementedError")
    assert code == 1
    assert "not written yet" in output
    assert "What will be checked" in output
    assert "--hint 1" in output
    assert "Traceback" not in output


def test_right_answer_passes(tmp_path: Path) -> None:
    code, output = grade(tmp_path, "softmax", "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))")
    assert code == 0
    assert "All 4 properties hold" in output


def test_refuses_forward_of_the_package_in_exercise_from_scratch(tmp_path: Path) -> None:
    code, output = grade(
        tmp_path, "rotary", "return na.rotary(x, positions, base)", before="import numpy_attention as na\n")
    assert code == 1
    assert "rotary of the package is not your own answer" in output
    theirs = "return byte_pairs.learn_merges({bytes(ids).decode(): 1}, 256 + num_merges)"
    code, output = grade(tmp_path, "byte_pairs", theirs, before="from numpy_attention.training import byte_pairs\n")
    assert code == 1
    assert "learn_merges of the package is not your own answer" in output


LOW_RANK = """rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        dz = self.scale * rows @ self.b.T
        db = self.scale * z.reshape(-1, z.shape[-1]).T @ rows
        dx = (rows @ self.w.T + dz @ self.a.T).reshape(x.shape)
        return dx, {"a": x_rows.T @ dz, "b": db}"""


def test_right_answer_of_a_layer_passes(tmp_path: Path) -> None:
    code, output = grade(tmp_path, "low_rank", LOW_RANK)
    assert code == 0, output
    assert "All 4 properties hold" in output


@pytest.mark.parametrize(("mistake", "words"), [
    ((", \"b\": db", ", \"b\": db / self.scale"), "a known mistake, `scale_left_out_of_db`"),
    (("dz @ self.a.T)", "0 * dz @ self.a.T)"), "a known mistake, `change_left_out_of_dx`"),
    (("\"b\": db", "\"b\": db, \"w\": x_rows.T @ rows"), "grads contains w, but no parameter has this name"),
], ids=["scale", "path", "frozen"])
def test_mistake_in_a_layer_is_explained(tmp_path: Path, mistake: tuple[str, str], words: str) -> None:
    assert mistake[0] in LOW_RANK
    code, output = grade(tmp_path, "low_rank", LOW_RANK.replace(*mistake))
    assert code == 1
    assert words in " ".join(output.split()), output


def test_endless_loop_is_stopped_and_its_line_is_named(tmp_path: Path) -> None:
    code, output = grade(tmp_path, "gelu", "while True:\n        x = x + 0", time_limit=3.0)
    assert code == 1
    assert "No answer after 3 seconds" in output
    assert "in gelu_backward, line" in output


def test_slow_file_is_stopped_at_a_multiple_of_the_limit_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FILE_LIMIT", 1.5)
    code, output = grade(tmp_path, "gelu", "import time; time.sleep(0.3); return dy", time_limit=2.0)
    assert code == 1
    assert "No result after 3 seconds: the function or the import of the file is too slow" in output


def test_import_may_take_longer_than_a_call(tmp_path: Path) -> None:
    before = "import time; time.sleep(2.5)\n"
    _, output = grade(tmp_path, "softmax", "raise NotImplementedError", time_limit=2.0, before=before)
    assert "not written yet" in output, output


def test_hints_are_shown_one_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FOLDER / "softmax.py")
    for number in (1, 2, 3):
        assert command_line(["grade", file, "--hint", str(number)]) == 0
        output = capsys.readouterr().out
        assert page_of("softmax").hints[number - 1] in output
        assert (f"--hint {number + 1}" in output) == (number < 3)
    assert command_line(["grade", file, "--hint", "4"]) == 2
    assert "softmax has the hints 1 to 3, got --hint 4" in capsys.readouterr().err


def test_solution_is_shown_after_the_exercise_is_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(FOLDER / "softmax.py", tmp_path)
    asked = ["grade", str(tmp_path), "--solution", "softmax", "--time-limit", "600"]  # also on a busy machine
    assert command_line(asked) == 1
    output = capsys.readouterr().out
    assert f"{tmp_path / 'softmax.py'} is not right yet, so here is the last hint." in output
    assert page_of("softmax").hints[-1] in output
    assert "grade --solution softmax --solution softmax" in output
    assert "def softmax_backward" not in output
    code, output = grade(tmp_path, "softmax", "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))")
    assert code == 0
    assert f"{tmp_path / 'softmax.py'} --solution softmax" in output
    for own in (tmp_path, tmp_path / "softmax.py"):
        assert command_line(["grade", str(own), *asked[2:]]) == 0
        assert "def softmax_backward" in capsys.readouterr().out


def test_solution_is_shown_if_its_name_is_given_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["grade", str(tmp_path), "--solution", "gelu"]
    assert command_line(asked) == 1
    assert "your answer was not found here, so here is the last hint" in capsys.readouterr().out
    assert command_line([*asked, "--solution", "gelu"]) == 0
    output = capsys.readouterr().out
    assert "y = x P(x) is a product" in output
    assert "def gelu_backward" in output
    assert not list(tmp_path.iterdir()), "the student's folder must stay empty"


def test_table_shows_state_of_every_exercise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("softmax", "linear", "adam"):
        shutil.copy(FOLDER / f"{name}.py", tmp_path)
    file = tmp_path / "softmax.py"
    right = "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))"
    file.write_text(file.read_text("utf-8").replace("raise NotImplementedError", right))
    file = tmp_path / "linear.py"
    file.write_text(file.read_text("utf-8").replace("raise NotImplementedError", "return dy, w, dy"))
    assert command_line(["grade", "--all", str(tmp_path)]) == 1
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "done       4 of 4" in lines["softmax"]
    assert "wrong" in lines["linear"]
    assert "to do" in lines["adam"]
    assert "no file" in lines["gelu"]
    assert lines["1"] == f"1 of {len(EXERCISES)} done"
    assert "not" not in lines


def test_table_names_files_that_belong_to_no_exercise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("bob_softmax.py", "notes.py", "data.txt"):
        (tmp_path / name).touch()
    assert command_line(["grade", "--all", str(tmp_path)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not graded, because no exercise has this name: bob_softmax.py, notes.py"


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "no file is given"),
    (["no_such_file.py"], "there is no file no_such_file.py"),
    ([__file__], f"grade: add --exercise NAME, because {__file__} names no exercise; the exercises are embedding"),
    ([str(FOLDER)], "is a folder; grade all its exercises with: grade --all "),
    (["--all", __file__], "--all takes one folder"),
    (["softmax.py", "--time-limit", "nan"], "--time-limit must be more than 0 seconds and at most one day, got nan"),
    (["softmax.py", "--time-limit", "inf"], "--time-limit must be more than 0 seconds and at most one day, got inf"),
    (["softmax.py", "--time-limit", "-1"], "--time-limit must be more than 0 seconds and at most one day, got -1"),
    (["softmax.py", "--time-limit", "1e300"], "more than 0 seconds and at most one day, got 1e+300"),
    (["--solution", "relu"], "relu is not an exercise; the exercises are embedding"),
    (["--solution", "gelu", "no_such_folder"], "there is no file no_such_folder"),
    (["--solution", "gelu", "a.py", "b.py"], "--solution takes one file or folder with your answer, got a.py b.py"),
    (["a\0b.py"], "contains a null byte"),
])
def test_wrong_argument_gives_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["grade", *arguments]) == 2
    output = capsys.readouterr().err
    assert words in output
    assert output.count("\n") == 1


def test_missing_hypothesis_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GradeError, match=r"pip install hypothesis, or, .*pip install '\.\[tutorials\]'$"):
        grade(tmp_path, "softmax", "return dy")
