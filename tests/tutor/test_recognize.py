"""The tutor names every known mistake, and gives no name to other answers."""


import pytest

from numpy_attention.tutor import MISTAKES
from numpy_attention.tutor.catalogue import EXERCISES, ours
from numpy_attention.tutor.grading import grade_module
from numpy_attention.tutor.recognize import recognize
from tests.tutor.hand_in import answer_of, by_default_a_few

FOUND_BY_THE_CHECKER = {"one_mask_for_two_uses": "is data stored outside the cache"}  # no single run shows them
OPTIONS_OF_NO_EXERCISE = {
    "distance_forgotten", "gamma_not_summed_over_heads", "paired_across_the_whole_width",
    "sink_left_out_of_L", "window_one_key_too_long", "keys_ahead_forgotten",
    "kl_of_the_wrong_sign", "other_experts_get_nothing",
}  # fmt: skip
PAIRS = [(exercise.name, mistake.name) for exercise in EXERCISES.values() for mistake in exercise.mistakes]


@pytest.mark.parametrize("name", by_default_a_few([one.name for one in EXERCISES.values() if one.mistakes]))
def test_every_known_mistake_is_recognized(name: str) -> None:
    exercise = EXERCISES[name]
    for mistake in exercise.mistakes:
        subject = "EncoderBlock" if "EncoderBlock" in exercise.subjects else mistake.covers
        found = recognize(exercise, answer_of(exercise, mistake), subject)
        assert mistake in found, f"{mistake.name} is taken for {[one.name for one in found]}"


def test_every_mistake_of_an_exercised_op_belongs_to_an_exercise() -> None:
    exercised = {subject for exercise in EXERCISES.values() for subject in exercise.subjects}
    wrong_answers = {mistake for _, mistake in PAIRS} | FOUND_BY_THE_CHECKER.keys() | OPTIONS_OF_NO_EXERCISE
    for mistake in MISTAKES.values():
        assert mistake.covers not in exercised or mistake.name in wrong_answers, mistake.name


@pytest.mark.parametrize(("mistake", "words"), FOUND_BY_THE_CHECKER.items())
def test_checker_explains_mistake_that_no_single_run_shows(mistake: str, words: str) -> None:
    exercise = EXERCISES[MISTAKES[mistake].covers]
    text = grade_module(exercise, answer_of(exercise, MISTAKES[mistake]), examples=4).text
    assert words in " ".join(text.split())


@pytest.mark.parametrize("name", ["softmax", "heads", "causal_mask", "adam", "rotary", "top_p", "byte_pairs"])
def test_right_answer_has_no_known_mistake(name: str) -> None:
    exercise = EXERCISES[name]
    assert [recognize(exercise, ours(), subject) for subject in exercise.subjects] == [[]] * len(exercise.subjects)


def test_unknown_mistake_is_not_named() -> None:
    module = answer_of(EXERCISES["softmax"], MISTAKES["zero"])
    module.softmax_backward = lambda dy, cache: 1.5 * ours().softmax_backward(dy, cache)
    assert recognize(EXERCISES["softmax"], module, "softmax") == []
