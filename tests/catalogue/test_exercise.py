"""A quiz finds the first wrong answer, and says in numbers what is wrong about it."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue.exercise import Questions, Quiz, difference, peak_memory, shown


def halves(x: np.ndarray) -> tuple[np.ndarray, int]:
    return x / 2, len(x)


def ask(rng: np.random.Generator) -> Questions:
    yield "zeros", (np.zeros(2),)
    yield "numbers at random", (rng.standard_normal(3),)


QUIZ = Quiz(halves, ask, ("y", "n"))


def test_the_right_answer_passes() -> None:
    for trial in QUIZ.trials.values():
        trial(halves, 0)


def test_a_wrong_answer_is_told_in_numbers_and_other_questions_do_not_mind() -> None:
    assert list(QUIZ.trials) == ["zeros", "numbers at random"]
    QUIZ.put("zeros", lambda x: (x, len(x)), 0)
    with pytest.raises(AssertionError) as failure:
        QUIZ.put("numbers at random", lambda x: (x, len(x)), 0)
    first, *lines = str(failure.value).splitlines()
    assert first.startswith("y at [0] is 0.12573, and must be 0.062865")
    assert lines == [
        "  x = [ 0.1257, -0.1321,  0.6404]", "  yours: [ 0.1257, -0.1321,  0.6404], 3",
        "  right: [ 0.0629, -0.0661,  0.3202], 3",
    ]


def test_a_dtype_is_told_without_the_numbers_that_do_not_show_it() -> None:
    with pytest.raises(AssertionError) as failure:
        QUIZ.put("zeros", lambda x: (x.astype(np.float32), len(x)), 0)
    assert str(failure.value) == "y must be of float64, and is of float32"


def test_arguments_that_are_changed_are_told() -> None:
    def careless(x: np.ndarray) -> tuple[np.ndarray, int]:
        x /= 2
        return x.copy(), len(x)

    with pytest.raises(AssertionError, match="the arguments were changed in place"):
        QUIZ.put("numbers at random", careless, 0)


def test_an_imprint_holds_all_answers_and_none_for_a_stop() -> None:
    zeros, numbers = QUIZ.imprint(lambda x: 1 / 0 if x.any() else x.sum())
    assert zeros == [0.0] * 3
    assert numbers == [None] * 3


@pytest.mark.parametrize(("answer", "expected", "words"), [
    (None, 3, "is None; is there a `return`"),
    (np.zeros(2), (np.zeros(2), 1), "must be a tuple of 2, got ndarray"),
    ((1,), (1, 2), "must hold 2, and holds 1"),
    ([(1, 3)], [(1, 2)], "number 1 of number 0 of x is 3, and must be 2"),
    ({"w": np.zeros(1)}, {"w": np.zeros(1), "b": np.zeros(1)}, "must be a dict with w, b"),
    ({"w": np.ones(1)}, {"w": np.zeros(1)}, "w at [0] is 1, and must be 0"),
    (1.0, 1, "must be an int, got float"),
    (True, 1, "must be an int, got bool"),
    (2.0, np.zeros(2), "must be an array of shape (2,), got float"),
    (np.zeros((1, 2)), np.zeros(2), "must have the shape (2,), and has (1, 2)"),
    (np.zeros(2, np.float32), np.zeros(2), "must be of float64, and is of float32"),
    (np.zeros(2), np.zeros(2, np.float32), "must be of float32, and is of float64\nnp.zeros makes float64: use"),
    (np.array([np.nan]), np.zeros(1), "x at [0] is nan, and must be 0"),
    (np.int64(2), 3, "is 2, and must be 3"),
])
def test_a_difference_in_words(answer: Any, expected: Any, words: str) -> None:
    assert words in difference(answer, expected, "x")


def test_no_difference_is_no_words() -> None:
    same = ([1, 2], (np.arange(3.0), {"w": np.ones((2, 1))}), np.int64(3))
    assert difference(same, ([1, 2], (np.arange(3.0) + 1e-12, {"w": np.ones((2, 1))}), 3)) == ""
    assert difference([(1, 2)], [[1, 2]]) == "", "a pair may be a list"


def test_large_arrays_are_shown_by_their_shape() -> None:
    assert shown(np.zeros((5, 6))) == "an array (5, 6)"
    assert shown({"w": np.array([0.5])}) == "{w: [0.5]}"
    assert shown("text") == "'text'"


def test_the_peak_of_a_call_is_its_largest_array() -> None:
    def wasteful(n: int) -> float:
        return float(np.ones(n).sum())

    peaks = [peak_memory(wasteful, n) for n in (10_000, 100_000)]
    assert peaks[0] > 80_000
    assert 5 < peaks[1] / peaks[0] < 15


def test_a_function_that_is_elsewhere_is_asked_for_its_peak_there() -> None:
    class There:
        def __call__(self) -> None:
            raise AssertionError("called here")

        def peak_memory(self, *args: int) -> int:
            return 7 + sum(args)

    assert peak_memory(There(), 1, 2) == 10
