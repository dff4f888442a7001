"""`na.grade` grades functions of this process, with the text of the command."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.page import exercise_texts
from tests.tutor import hand_in

LINES = {
    "right": hand_in.RIGHT,
    "known": "return y * (1 - y) * dy",
    "raises": "return dy[7]",
    "empty": "raise NotImplementedError",
}


def written(line: str) -> Any:
    """A student's softmax_backward that ends with this line."""
    own: dict[str, Any] = {"np": np}
    exec(f"def softmax_backward(dy, cache):\n    y, axis = cache\n    {line}\n", own)
    return own["softmax_backward"]


def graded(line: str, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[Any, str]:
    capsys.readouterr()
    result = na.grade("softmax", written(line), **options)
    return result, capsys.readouterr().out


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_text_and_result_are_those_of_the_command(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, expected = hand_in.grade(tmp_path, "softmax", line)
    result, text = graded(line, capsys)
    assert bool(result) == (code == 0)

    def lines(output: str) -> list[str]:
        kept = [one.partition(" (softmax.py, line")[0].partition(" (your cell, line")[0] for one in output.splitlines()]
        return [one for one in kept if "solution" not in one and "hint" not in one]

    assert lines(text) == lines(expected)


def test_hint_and_solution(capsys: pytest.CaptureFixture[str]) -> None:
    assert na.grade("softmax", hint=2) is None
    second = exercise_texts()["softmax"].hints[1]
    assert f"{second} Try again. If this hint does not help: hint=3" in " ".join(capsys.readouterr().out.split())
    _, text = graded(LINES["right"], capsys, solution=True)
    assert exercise_texts()["softmax"].solution in text
    assert 'na.grade("softmax", softmax_backward, solution=True)' in text
    _, text = graded(LINES["known"], capsys, solution=True)
    assert exercise_texts()["softmax"].solution not in text
    assert 'A hint:\n  na.grade("softmax", hint=1)' in text


def test_error_names_the_line_of_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    class Adam:
        def __init__(self, parameters: Any, *_: Any, **__: Any) -> None:
            self.parameters = parameters

        def step(self, grads: Any) -> None:
            raise KeyError("w")

    assert na.grade("adam", Adam).state == "broken"
    assert "KeyError: 'w' (test_notebook.py, line " in capsys.readouterr().out


def ab() -> None:
    """A function with a name that no exercise has."""


@pytest.mark.parametrize(("exercise", "answers", "words"), [
    ("softmx", [ab], "softmx is not an exercise; the exercises are embedding"),
    ("softmax", [], 'no function is given; write na.grade("softmax", softmax_backward)'),
    ("softmax", [3], "softmax_backward must be a function, got 3"),
    ("heads", [ab], 'write na.grade("heads", split_heads_backward, concat_heads_backward)'),
    ("adam", [ab], "Adam must be a class, got <function ab"),
    ("softmax", [na.softmax_backward], "softmax_backward of the package is not your own answer"),
])
def test_wrong_argument_gives_one_line(exercise: Any, answers: list[Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        na.grade(exercise, *answers)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_unchanged_exercise_is_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    own: dict[str, Any] = {}
    exec((hand_in.FOLDER / f"{name}.py").read_text("utf-8"), own)
    result = na.grade(name, *(own[needed] for needed in EXERCISES[name].needed))
    assert result is not None
    assert result.state == "to do"


def test_printed_text_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = graded("print('here', dy.shape); return dy, dy", capsys)
    assert "\n\n  Your code printed:\n    here (2,)\n" in text
