"""Where no rule explains a mistake, its place does, in words that say no more than is known."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.words.places import indices_in_words, place, place_in_words


@pytest.mark.parametrize(("index", "words"), [
    ((slice(None),), "every element"), (((1,), (2,)), "a single element"), ((3,), "only the last along axis 0"),
    ((slice(None), 0), "only the first along axis 1"), ((2,), "only number 2 along axis 0"),
    (np.eye(4, dtype=bool), "the diagonal"), (~np.eye(4, dtype=bool), "all but the diagonal"),
    (np.tri(4, k=-1, dtype=bool), "only below the diagonal"),
    (np.tri(4, k=-1, dtype=bool).T, "only above the diagonal"),
    (([0, 2],), "only places 0, 2 along axis 0"), ((slice(1, 3),), "only places 1 to 2 along axis 0"),
    ((slice(0, 2), slice(2, 4)), "only places 0 to 1 along axis 0 and places 2 to 3 along axis 1"),
    (([0, 0, 2], [0, 1, 3]), ""),
])
def test_the_place_of_what_is_wrong_is_said_in_a_few_words(index: Any, words: str) -> None:
    wrong = np.zeros((4, 4), dtype=bool)
    wrong[index] = True
    assert place(wrong, np.ones((4, 4), dtype=bool)) == words


def test_the_edges_of_a_picture() -> None:
    wrong = np.ones((2, 5, 6), dtype=bool)
    wrong[:, 1:-1, 1:-1] = False
    words = place(wrong, np.ones((2, 5, 6), dtype=bool))
    assert words == "only the edges: all but places 1 to 3 along axis 1 and places 1 to 4 along axis 2"


@pytest.mark.parametrize(("indices", "n", "words"), [
    ([4], 5, "the last"), ([0], 5, "the first"), ([0, 4], 5, "the first and the last"),
    ([1, 4, 7], 9, "every 3th place from 1"),
    ([0, 1, 3, 4, 6, 8, 9], 12, "places 0, 1, 3, 4, 6, 8 ..."),
])
def test_places_along_an_axis(indices: list[int], n: int, words: str) -> None:
    assert indices_in_words(np.array(indices), n) == words


@pytest.mark.parametrize(("rows", "loop"), [(2, False), (4, True)])
def test_a_loop_is_suspected_only_where_there_is_something_to_loop_over(rows: int, loop: bool) -> None:
    wrong = np.zeros((rows, 3), dtype=bool)
    wrong[-1] = True
    report = ArgumentReport("x", wrong * 1.0, wrong * 0.0, wrong * 0.0, wrong, wrong & False, 0)
    report.pattern = place(wrong, np.ones_like(wrong))
    words = place_in_words(report)
    assert "dx is wrong in the last along axis 0" in words
    assert ("stop one short" in words) == loop


def test_a_triangle_reads_as_a_sentence() -> None:
    wrong = np.tri(5, k=-1, dtype=bool)
    report = ArgumentReport("a", wrong * 1.0, wrong * 0.0, wrong * 0.0, wrong, wrong & False, 0)
    report.pattern = "only below the diagonal"
    assert place_in_words(report) == "da is wrong only below the diagonal, by no simple rule"
