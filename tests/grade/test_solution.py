"""Every exercise has a worked solution, with its reasoning, and it is right."""

from types import SimpleNamespace
from typing import Any

import pytest
from numpy_attention.grade.solution import FOLDER, solution_of, told

from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.grade.grading import grade_module
from tests.grade import hand_in


def test_every_exercise_has_one_and_there_are_no_others() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == EXERCISES.keys()


@pytest.mark.parametrize("name", EXERCISES)
def test_put_into_the_file_it_passes(name: str) -> None:
    exercise, (reasoning, code) = EXERCISES[name], solution_of(name)
    own: dict[str, Any] = {}
    exec((hand_in.FOLDER / f"{name}.py").read_text("utf-8") + "\n" + code, own)
    for method in {"backward", "step"} & own.keys():
        setattr(own[exercise.subjects[0]], method, own[method])
    grade = grade_module(exercise, SimpleNamespace(**own), examples=3)
    assert grade.state == "right", grade.text
    assert len(reasoning) > 200
    assert all(len(line) <= 105 for line in told(name).splitlines())


def test_for_a_terminal_the_code_is_indented_below_the_reasoning() -> None:
    said = told("softmax")
    assert said.startswith("The quotient rule gives")
    assert "\n\n    def softmax_backward(dy, cache):\n        y, axis = cache\n" in said
    assert "```" not in said
