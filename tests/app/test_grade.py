"""`grade` from the command line: exit codes, and refusals in one line."""

import numpy_attention.grade.run
from numpy_attention.app.main import main
from tests.app.commands import refused


def test_refuses_missing_exercise_in_one_line(capsys, tmp_path):
    assert "no file is given" in refused(capsys, "grade")
    assert "there is no file" in refused(capsys, "grade", tmp_path / "softmax.py")


def test_options_reach_the_grader_and_its_result_is_the_exit_code(monkeypatch):
    asked = []

    def graded(*arguments):
        asked.append(arguments)
        return len(asked) - 1

    monkeypatch.setattr(numpy_attention.grade.run, "main", graded)
    assert main(["grade", "a.py", "b.py", "--time-limit", "3"]) == 0
    assert main(["grade", "a.py", "--hint", "2", "--exercise", "softmax"]) == 1
    assert main(["grade", "--solution", "gelu", "--solution", "gelu"]) == 2
    assert asked == [
        (["a.py", "b.py"], False, None, None, 3.0, []), (["a.py"], False, 2, "softmax", 10.0, []),
        ([], False, None, None, 10.0, ["gelu", "gelu"]),
    ]
