"""A test plays the student: the reference passes, and every known wrong answer is told what it is."""

from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention import layers
from numpy_attention.gallery import MUTANTS, Mutant
from numpy_attention.grade.exercise import Exercise, ours
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.grading import grade_module

PAIRS = [(exercise.name, mutant.name) for exercise in EXERCISES.values() for mutant in exercise.mutants]


def answer_of(exercise: Exercise, mutant: Mutant) -> Any:
    """A module in which the reference answers, but for one known mistake."""
    module = SimpleNamespace(**vars(ours()))
    if mutant.covers in exercise.trials:
        setattr(module, mutant.covers, mutant.stand_in)
    elif mutant.covers == "EncoderBlock":
        cls = mutant.spoiled_class(layers.EncoderBlock)
        module.EncoderBlock = lambda *sizes, dtype: cls(*sizes, pre_norm=True, activation="gelu", dtype=dtype)
    elif mutant.method:
        setattr(module, mutant.covers, mutant.spoiled_class(getattr(layers, mutant.covers)))
    else:
        if mutant.op is not None:
            setattr(module, mutant.covers, mutant.op)
        if mutant.op_backward is not None:
            setattr(module, f"{mutant.covers}_backward", mutant.op_backward)
    return module


@pytest.mark.parametrize("name", EXERCISES)
def test_the_reference_passes(name: str) -> None:
    grade = grade_module(EXERCISES[name], ours(), examples=5)
    assert grade.state == "right", grade.text
    assert grade.passed == grade.of


@pytest.mark.parametrize(("name", "mutant"), PAIRS)
def test_a_known_wrong_answer_fails_and_is_called_by_its_name(name: str, mutant: str) -> None:
    exercise = EXERCISES[name]
    grade = grade_module(exercise, answer_of(exercise, MUTANTS[mutant]), examples=4)
    assert grade.state in ("wrong", "broken"), grade.text
    assert f"`{mutant}`" in grade.text, grade.text
    assert MUTANTS[mutant].wrong.split()[0] in grade.text


@pytest.mark.parametrize("name", EXERCISES)
def test_there_are_three_hints_and_none_repeats(name: str) -> None:
    hints = EXERCISES[name].hints
    assert len(set(hints)) == 3
    assert all(len(hint) > 40 and hint.endswith((".", ")", "?")) for hint in hints)


def test_every_mutant_of_an_exercised_op_is_among_the_wrong_answers_of_some_exercise() -> None:
    exercised = {covers for exercise in EXERCISES.values() for covers in exercise.covers}
    wrong_answers = {mutant for _, mutant in PAIRS}
    for mutant in MUTANTS.values():
        assert mutant.covers not in exercised or mutant.name in wrong_answers, mutant.name


def test_a_forward_that_was_changed_is_noticed() -> None:
    module = SimpleNamespace(**vars(ours()))
    module.softmax = lambda x, axis=-1: (2 * ours().softmax(x, axis)[0], ours().softmax(x, axis)[1])
    grade = grade_module(EXERCISES["softmax"], module, examples=5)
    assert grade.state == "wrong"
    assert "put it back" in grade.text


def test_a_whole_square_array_is_noticed() -> None:
    module = SimpleNamespace(**vars(ours()))
    right = module.tiled_attention_backward

    def wasteful(dy: Any, cache: Any) -> Any:
        q, k = cache.q, cache.k
        square = q @ k.swapaxes(-1, -2)
        return right(dy + 0 * square.sum(), cache)

    module.tiled_attention_backward = wasteful
    grade = grade_module(EXERCISES["tiled_attention"], module, examples=3)
    assert grade.state == "wrong"
    assert "1200 x 1200" in grade.text
