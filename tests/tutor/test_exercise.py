"""Our answers pass every exercise, and a quiz shows the first wrong answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.tutor.catalogue import EXERCISES, ours
from numpy_attention.tutor.compare import same
from numpy_attention.tutor.exercise import Questions, Quiz, difference
from numpy_attention.tutor.grading import grade_module

FILES = Path(__file__).parents[2] / "tutorials" / "exercises"


def halves(x: np.ndarray) -> tuple[np.ndarray, int]:
    return x / 2, len(x)


def ask(rng: np.random.Generator) -> Questions:
    yield "zeros", (np.zeros(2),)
    yield "random numbers", (rng.standard_normal(3),)


QUIZ = Quiz(ask, ("y", "n"), right=halves)


def test_wrong_answer_shows_numbers_and_fails_only_its_question() -> None:
    assert list(QUIZ.trials) == ["zeros", "random numbers"]
    QUIZ.check_answer("zeros", lambda x: (x, len(x)), 0)
    with pytest.raises(AssertionError) as failure:
        QUIZ.check_answer("random numbers", lambda x: (x, len(x)), 0)
    first, *lines = str(failure.value).splitlines()
    assert first.startswith("y at [0] is 0.12573, but must be 0.062865")
    assert lines == [
        "likely mistake: every number is 2 times the right one",
        "  x = [ 0.1257, -0.1321,  0.6404]", "  yours: [ 0.1257, -0.1321,  0.6404], 3",
        "  right: [ 0.0629, -0.0661,  0.3202], 3",
    ]


def test_changed_arguments_are_reported() -> None:
    def in_place(x: np.ndarray) -> tuple[np.ndarray, int]:
        x /= 2
        return x.copy(), len(x)

    with pytest.raises(AssertionError, match="the arguments were changed in place"):
        QUIZ.check_answer("random numbers", in_place, 0)


@pytest.mark.parametrize(("answer", "expected", "message"), [
    (None, 3, "is None; does the function end with `return"),
    (np.zeros(2), (np.zeros(2), 1), "must be a tuple of 2, got ndarray"),
    ([(1, 3)], [(1, 2)], "number 1 of number 0 of x is 3, but must be 2"),
    ({"w": np.ones(1)}, {"w": np.zeros(1)}, "w at [0] is 1, but must be 0"),
    (np.zeros((1, 2)), np.zeros(2), "must have shape (2,), but has (1, 2)"),
    (np.zeros(2), np.zeros(2, np.float32), "must have dtype float32, but has float64\nnp.zeros returns float64: use"),
])
def test_difference_describes_the_wrong_part(answer: Any, expected: Any, message: str) -> None:
    assert message in difference(answer, expected, "x")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_our_answer_passes_the_exercise(name: str) -> None:
    grade = grade_module(EXERCISES[name], ours(), examples=3)
    assert grade.state == "right", grade.text
    assert grade.passed == grade.of


def test_every_exercise_has_a_file_and_every_file_is_an_exercise() -> None:
    assert {file.stem for file in FILES.glob("*.py")} == EXERCISES.keys()
    for name in EXERCISES:
        text = (FILES / f"{name}.py").read_text("utf-8")
        assert "raise NotImplementedError" in text
        assert f"python -m numpy_attention grade tutorials/exercises/{name}.py --hint 1" in text


QUIZZES = {
    name: quiz for exercise in EXERCISES.values() for name, quiz in exercise.quizzes.items() if isinstance(quiz, Quiz)
}


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from value.reshape(-1).tolist()
    elif isinstance(value, list | tuple):
        for one in value:
            yield from numbers(one)
    elif isinstance(value, dict):
        yield from numbers(list(value.values()))
    else:
        yield value


@pytest.mark.parametrize("name", QUIZZES)
def test_questions_are_repeatable_and_answers_are_finite(name: str) -> None:
    quiz = QUIZZES[name]
    first, again = ([*quiz.ask(np.random.default_rng(3))] for _ in range(2))
    assert same([arguments for _, arguments in first], [arguments for _, arguments in again])
    assert len({text for text, _ in first}) == len(first) >= 4
    for text, arguments in first:
        assert np.isfinite(list(numbers(quiz.right(*arguments)))).all(), text
