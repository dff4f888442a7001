"""Every known wrong answer is called by its name, and no other is."""


import pytest

from numpy_attention.gallery import MUTANTS
from numpy_attention.grade.exercise import ours
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.grading import grade_module
from numpy_attention.grade.recognize import recognize
from tests.grade.hand_in import answer_of

PAIRS = [(exercise.name, mutant.name) for exercise in EXERCISES.values() for mutant in exercise.mutants]


@pytest.mark.parametrize(("name", "mutant"), PAIRS)
def test_a_known_wrong_answer_fails_and_is_called_by_its_name(name: str, mutant: str) -> None:
    exercise = EXERCISES[name]
    grade = grade_module(exercise, answer_of(exercise, MUTANTS[mutant]), examples=4)
    assert grade.state in ("wrong", "broken"), grade.text
    assert f"`{mutant}`" in grade.text, grade.text
    assert MUTANTS[mutant].wrong.split()[0] in grade.text


def test_every_mutant_of_an_exercised_op_is_among_the_wrong_answers_of_some_exercise() -> None:
    exercised = {subject for exercise in EXERCISES.values() for subject in exercise.subjects}
    wrong_answers = {mutant for _, mutant in PAIRS}
    for mutant in MUTANTS.values():
        assert mutant.covers not in exercised or mutant.name in wrong_answers, mutant.name


@pytest.mark.parametrize("name", ["softmax", "heads", "causal_mask", "adam"])
def test_the_right_answer_is_no_known_mistake(name: str) -> None:
    exercise = EXERCISES[name]
    assert [recognize(exercise, ours(), subject) for subject in exercise.subjects] == [[]] * len(exercise.subjects)


def test_a_mistake_that_nobody_knows_gets_no_name() -> None:
    module = answer_of(EXERCISES["softmax"], MUTANTS["zero"])
    module.softmax_backward = lambda dy, cache: 1.5 * ours().softmax_backward(dy, cache)
    assert recognize(EXERCISES["softmax"], module, "softmax") == []
