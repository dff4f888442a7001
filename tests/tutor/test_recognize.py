"""The tutor names every known mistake, and gives no name to other answers."""

from pathlib import Path

import pytest

from numpy_attention.tutor import MISTAKES
from numpy_attention.tutor.catalogue import EXERCISES, ours
from numpy_attention.tutor.grading import grade_module
from numpy_attention.tutor.recognize import recognize, recognize_two
from tests.tutor.hand_in import answer_of, by_default_a_few, tutor_text

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


def test_mistake_of_the_softmax_is_named_inside_attention(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "attention", """dweights = dy @ v.swapaxes(-1, -2)
    dscores = scale * weights * (1 - weights) * dweights
    return dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dy""")
    assert "This is a known mistake, `diagonal_only`" in output


def test_two_mistakes_are_named_with_their_cases(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return dy - y * dy.sum(-1, keepdims=True)")
    first, second = "In the case `softmax: last axis`", "In the cases `softmax: axis 0` and `softmax: axis 1`"
    assert f"These are two mistakes. {first}, a known mistake, `log_softmax`" in output
    assert f"{second} there is also a second mistake. It ignores the option axis" in output


def test_two_known_mistakes_of_one_function_are_named() -> None:
    exercise, both = EXERCISES["layer_norm"], (MISTAKES["gamma_left_out"], MISTAKES["variance_path_forgotten"])
    found = recognize_two(exercise, answer_of(exercise, both[0].and_also(both[1])), "layer_norm")
    assert [mistake for _, mistake in found] == list(both)
