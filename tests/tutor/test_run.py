"""The command `grade`: it runs a file in another process with a time limit, and prints text for students."""

import shutil
from pathlib import Path

import pytest

from numpy_attention.app.main import main as command_line
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.page import exercise_texts
from tests.tutor.hand_in import FOLDER, RIGHT, UNWRITTEN, grade, written


@pytest.mark.slow
@pytest.mark.usefixtures("other_process")
def test_right_answer_passes_in_the_other_process(tmp_path: Path) -> None:
    """Files beside the exercise have names of Python's modules, and a thread of the file does not end."""
    for name in ("copy.py", "random.py", "json.py"):
        (tmp_path / name).write_text("raise SystemError")
    before = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\nprint('begin')\n"
    code, output = grade(tmp_path, "softmax", RIGHT, before=before)
    assert code == 0, output
    assert "All 4 properties hold" in output
    assert "  The file printed:\n    begin\n" in output
    assert f"{tmp_path / 'softmax.py'} --solution softmax" in output


@pytest.mark.slow
@pytest.mark.usefixtures("other_process")
def test_endless_loop_is_stopped_and_its_line_is_named(tmp_path: Path) -> None:
    code, output = grade(tmp_path, "gelu", "while True: print('so')", time_limit=1.0)
    assert code == 1
    words = "No answer after 1 seconds in: gelu, in a first run of all checks. Python was in gelu_backward, line"
    assert words in " ".join(output.split())
    assert "is there an endless loop?" in " ".join(output.split())
    assert "--time-limit" in output
    assert "The file printed:\n    so\n    so\n" in output
    assert output.count("    so\n") == 12
    assert "... and more lines" in output


@pytest.mark.slow
@pytest.mark.usefixtures("other_process")
def test_properties_before_an_endless_loop_are_kept(tmp_path: Path) -> None:
    loop = "while u == 0: pass\n    return int(np.searchsorted(np.cumsum(probabilities), u, 'right'))"
    _, output = grade(tmp_path, "top_p", UNWRITTEN, loop, time_limit=1.0)
    assert "right    draw: " in output
    assert "No answer after 1 seconds in: draw: " in " ".join(output.split())


@pytest.mark.slow
@pytest.mark.usefixtures("other_process")
@pytest.mark.parametrize(("before", "words"), [
    ("import os\nos._exit(0)\n", "softmax.py ended the Python process before the grader had a result\n"),
    ("import ctypes\nctypes.string_at(0)\n", "softmax.py ended the Python process before the grader had a result\n"),
    ("import time\ntime.sleep(2)\n", "All 4 properties hold"),
], ids=["exit", "crash", "slow import"])
def test_end_of_the_process_is_reported(tmp_path: Path, before: str, words: str) -> None:
    _, output = grade(tmp_path, "softmax", RIGHT, before=before)
    assert words in output
    assert "Traceback" not in output


def test_hints_are_shown_one_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FOLDER / "softmax.py")
    for number in (1, 2, 3):
        assert command_line(["grade", file, "--hint", str(number)]) == 0
        output = capsys.readouterr().out
        assert exercise_texts()["softmax"].hints[number - 1] in " ".join(output.split())
        assert (f"--hint {number + 1}" in output) == (number < 3)
    assert command_line(["grade", file, "--hint", "4"]) == 2
    assert "softmax has the hints 1 to 3, got --hint 4" in capsys.readouterr().err


def test_solution_is_shown_after_the_exercise_is_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(FOLDER / "softmax.py", tmp_path)
    asked = ["grade", str(tmp_path), "--solution", "softmax"]
    assert command_line(asked) == 1
    output = capsys.readouterr().out
    assert f"{tmp_path / 'softmax.py'} is not right yet, so here is the last hint." in output
    assert exercise_texts()["softmax"].hints[-1] in output
    assert "grade --solution softmax --solution softmax" in output
    assert "def softmax_backward" not in output
    file = written(tmp_path, "softmax", RIGHT)
    for own in (tmp_path, file):
        assert command_line(["grade", str(own), *asked[2:]]) == 0
        assert "def softmax_backward" in capsys.readouterr().out


def test_table_shows_state_of_every_exercise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, "softmax", RIGHT)
    written(tmp_path, "linear", "return dy, w, dy")
    written(tmp_path, "adam")
    for name in ("bob_softmax.py", "notes.py", "data.txt"):
        (tmp_path / name).touch()
    assert command_line(["grade", "--all", str(tmp_path)]) == 1
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "done       4 of 4" in lines["softmax"]
    assert "wrong" in lines["linear"]
    assert "to do" in lines["adam"]
    assert "no file" in lines["gelu"]
    assert lines["1"] == f"1 of {len(EXERCISES)} done"
    assert lines["not"] == "not graded, because no exercise has this name: bob_softmax.py, notes.py"


@pytest.mark.parametrize(("arguments", "words"), [
    (["no_such_file.py"], "there is no file no_such_file.py"),
    ([__file__], f"grade: add --exercise NAME, because {__file__} names no exercise; the exercises are embedding"),
    ([str(FOLDER)], "is a folder; grade all its exercises with: "),
    (["softmax.py", "--time-limit", "-1"], "--time-limit must be more than 0 seconds, got -1"),
])
def test_wrong_argument_gives_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["grade", *arguments]) == 2
    output = capsys.readouterr().err
    assert words in output
    assert output.count("\n") == 1
