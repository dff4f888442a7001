"""If no rule explains the wrong elements, the diagnosis names their place: an index, or a simple condition."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.places import indices_in_words, place, place_in_words
from numpy_attention.gradcheck.report import ArgumentReport
from tests.gradcheck.planted import diagnosis_of


@pytest.mark.parametrize(("index", "text"), [
    ((slice(None),), "every element"), (((1,), (2,)), "a single element"), ((3,), "only the last place along axis 0"),
    ((slice(None), 0), "only the first place along axis 1"), ((2,), "only place 2 along axis 0"),
    (np.eye(4, dtype=bool), "the diagonal"), (~np.eye(4, dtype=bool), ""),
    (([0, 2],), "only places 0, 2 along axis 0"), ((slice(1, 3),), "only places 1 to 2 along axis 0"),
    ((slice(0, 2), slice(2, 4)), "only places 0 to 1 along axis 0 and places 2 to 3 along axis 1"),
    (([0, 0, 2], [0, 1, 3]), ""),
])
def test_the_place_of_wrong_elements_in_words(index: Any, text: str) -> None:
    wrong = np.zeros((4, 4), dtype=bool)
    wrong[index] = True
    assert place(wrong, np.ones((4, 4), dtype=bool)) == text


@pytest.mark.parametrize(("indices", "n", "text"), [
    ([4], 5, "the last place"), ([0], 5, "the first place"), ([0, 4], 5, "places 0, 4"),
    ([0, 1, 3, 4, 6, 8, 9], 12, "places 0, 1, 3, 4, 6, 8 ..."),
])
def test_places_along_an_axis(indices: list[int], n: int, text: str) -> None:
    assert indices_in_words(np.array(indices), n) == text


@pytest.mark.parametrize(("rows", "loop"), [(2, False), (4, True)])
def test_a_loop_is_suspected_only_for_long_axes(rows: int, loop: bool) -> None:
    wrong = np.zeros((rows, 3), dtype=bool)
    wrong[-1] = True
    report = ArgumentReport("x", wrong * 1.0, wrong * 0.0, wrong * 0.0, wrong, wrong & False, 0)
    report.pattern = place(wrong, np.ones_like(wrong))
    text = place_in_words(report)
    assert "dx is wrong only in the last place along axis 0" in text
    assert ("end one place early" in text) == loop


def test_a_single_value(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    x[0, 2] = x[2, 1] = 0.0
    text = diagnosis_of(lambda x: x**3, lambda dy, x: dy * np.where(x == 0, 5.0, 3 * x * x), x)
    assert "wrong only where x is exactly 0" in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "x is exactly 0"), (1.0, "x is exactly 1"), (2.5, "x and t are equal")]
)
def test_a_single_wrong_value_is_named(value: float, text: str, rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((3, 5)), rng.standard_normal((3, 5))
    x[1, 2], t[1, 2] = value, 2.5

    def vjp(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> Any:
        return dy * t * np.where(x == value, 7.0, np.cos(x)), dy * np.sin(x)

    with pytest.raises(GradientError, match=f"wrong only where {text}: does the backward treat this case separately"):
        gradcheck_vjp(lambda x, t: np.sin(x) * t, vjp, (x, t))
