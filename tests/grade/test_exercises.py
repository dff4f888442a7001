"""The exercises of the list: each has a file, and each is passed by our own answer."""


import pytest

from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.grading import grade_module
from numpy_attention.grade.references import ours
from tests.grade.hand_in import FOLDER


@pytest.mark.parametrize("name", EXERCISES)
def test_the_reference_passes(name: str) -> None:
    grade = grade_module(EXERCISES[name], ours(), examples=5)
    assert grade.state == "right", grade.text
    assert grade.passed == grade.of


def test_every_exercise_is_a_file_and_every_file_an_exercise() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == set(EXERCISES)
    for name in EXERCISES:
        text = (FOLDER / f"{name}.py").read_text("utf-8")
        assert "raise NotImplementedError" in text
        assert f"python -m numpy_attention grade tutorials/exercises/{name}.py --hint 1" in text
