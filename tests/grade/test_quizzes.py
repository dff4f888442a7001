"""Every quiz has the same questions for the same seed, and its reference answers them with finite numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue.properties import same
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.quizzes import QUIZZES


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
def test_questions_are_repeated_by_their_seed_and_answered_in_finite_numbers(name: str) -> None:
    quiz = QUIZZES[name]
    first, again = ([*quiz.ask(np.random.default_rng(3))] for _ in range(2))
    assert same([arguments for _, arguments in first], [arguments for _, arguments in again])
    assert len({words for words, _ in first}) == len(first) >= 4
    for words, arguments in first:
        assert np.isfinite(list(numbers(quiz.right(*arguments)))).all(), words


def test_every_quiz_is_put_in_some_exercise() -> None:
    assert QUIZZES.keys() <= {subject for exercise in EXERCISES.values() for subject in exercise.trials}
