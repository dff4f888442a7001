"""Every exercise has a page: its claim, three hints from where to look to almost the answer, and a right solution."""

from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.grade.grading import grade_module
from numpy_attention.grade.page import FOLDER, PAGE, page_of
from tests.every import each
from tests.grade import hand_in


def test_pages_are_of_exercises_and_every_exercise_has_one() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == EXERCISES.keys()


@each(EXERCISES)
def test_title_claim_and_hints_can_be_read(name: str) -> None:
    page = page_of(name)
    assert page.title[0].isalnum()
    assert page.claim.endswith(".")
    assert len(set(page.hints)) == 3
    assert all(len(hint) > 40 and hint.endswith((".", ")", "?")) for hint in page.hints)
    assert "  " not in page.claim + "".join(page.hints), "what stands in several lines is one sentence after the other"
    assert len(page.reasoning) > 200
    assert all(len(line) <= 105 for line in page.solution.splitlines())


def test_a_page_that_lacks_a_part_is_none() -> None:
    text = (FOLDER / "softmax.md").read_text("utf-8")
    assert PAGE.fullmatch(text)
    for part in ("# the", "**What is checked.**", "## Hints", "## Solution", "```python\n"):
        assert not PAGE.fullmatch(text.replace(part, "", 1)), part


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_put_into_the_file_passes(name: str) -> None:
    exercise = EXERCISES[name]
    own: dict[str, Any] = {}
    exec((hand_in.FOLDER / f"{name}.py").read_text("utf-8") + "\n" + page_of(name).code, own)
    for method in {"backward", "step"} & own.keys():
        setattr(own[exercise.subjects[0]], method, own[method])
    grade = grade_module(exercise, SimpleNamespace(**own), examples=3)
    assert grade.state == "right", grade.text


def test_for_a_terminal_the_code_is_indented_below_the_reasoning() -> None:
    page = page_of("softmax")
    assert page.hints[0].endswith("the slope of y_i for x_j is y_i ([i = j] - y_j).")
    assert page.solution.startswith("The quotient rule gives")
    assert "\n\n    def softmax_backward(dy, cache):\n        y, axis = cache\n" in page.solution
    assert "```" not in page.solution
