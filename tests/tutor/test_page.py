"""Every exercise has a page: what is checked, three hints, and a right solution."""

from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.grading import grade_module
from numpy_attention.tutor.page import exercise_texts
from tests.every import each
from tests.tutor import hand_in


def test_every_exercise_has_texts() -> None:
    assert list(exercise_texts()) == list(EXERCISES)


@each(EXERCISES)
def test_page_has_title_checks_hints_and_reasoning(name: str) -> None:
    page = exercise_texts()[name]
    assert page.title[0].isalnum()
    assert page.checked.endswith(".")
    assert len(set(page.hints)) == 3
    assert all(len(hint) > 40 and hint.endswith((".", ")", "?")) for hint in page.hints)
    assert "  " not in page.checked + "".join(page.hints), "line ends must be single spaces"
    assert len(page.reasoning) > 200
    long = [line for line in page.solution.splitlines() if len(line) > 105]
    assert not long, f"a terminal shows the solution: at most 101 columns in text and code, got {long}"


@pytest.mark.parametrize("name", hand_in.by_default_a_few(EXERCISES))
def test_solution_passes(name: str) -> None:
    exercise = EXERCISES[name]
    own: dict[str, Any] = {}
    exec((hand_in.FOLDER / f"{name}.py").read_text("utf-8") + "\n" + exercise_texts()[name].code, own)
    for method in {"backward", "step"} & own.keys():
        setattr(own[exercise.subjects[0]], method, own[method])
    grade = grade_module(exercise, SimpleNamespace(**own), examples=1)
    assert grade.state == "right", grade.text


@each(EXERCISES)
def test_tutorial_lists_the_exercise(name: str) -> None:
    (tutorial,) = (hand_in.FOLDER.parent).glob(f"{exercise_texts()[name].tutorial:02d}-*.md")
    assert f"exercises/{name}.py" in tutorial.read_text("utf-8"), f"{tutorial.name} does not list the exercise"


def test_solution_for_terminal_has_indented_code_after_reasoning() -> None:
    page = exercise_texts()["softmax"]
    assert page.hints[0].endswith("the derivative of y_i with respect to x_j is y_i ([i = j] - y_j).")
    assert page.solution.startswith("The quotient rule gives")
    assert "\n\n    def softmax_backward(dy, cache):\n        y, axis = cache\n" in page.solution
    assert "```" not in page.solution
