"""A gradient made of formulas is exact to 14 digits; a gradient made of numerical differences is not."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.catalogue.exercise import Try
from numpy_attention.catalogue.table import EXERCISES, ours
from numpy_attention.grade.formula import compare_with_ours
from numpy_attention.grade.guard import NotOwnWork


def of_gelu(off: Any) -> None:
    """Hand in a gradient of GELU that is changed by the function `off`."""
    one = Try("gelu", "x: A B C")
    theirs = SimpleNamespace(gelu=ops.gelu, gelu_backward=lambda dy, cache: off(ops.gelu_backward(dy, cache)))
    entries = one.entry(theirs), one.entry(ours())
    compare_with_ours("gelu", *(entry.case(3).problem() for entry in entries), 3)


@pytest.mark.parametrize("share", [0.0, 1e-15, 1e-13])
def test_round_off_passes(rng: np.random.Generator, share: float) -> None:
    of_gelu(lambda dx: dx * (1 + share * rng.standard_normal(dx.shape)))


@pytest.mark.parametrize("share", [1e-11, 1e-9])
def test_refuses_precision_of_differences(rng: np.random.Generator, share: float) -> None:
    with pytest.raises(NotOwnWork, match=r"right to \d+ digits, but a formula gives 15"):
        of_gelu(lambda dx: dx + share * np.max(np.abs(dx)) * (1 + rng.random(dx.shape)))


def test_one_element_may_have_a_small_error_only() -> None:
    def first(dx: np.ndarray, share: float) -> np.ndarray:
        moved = dx.copy()
        moved.flat[0] += share * np.max(np.abs(dx))
        return moved

    of_gelu(lambda dx: first(dx, 1e-9))
    with pytest.raises(AssertionError, match=r"dx is off by 1\.0e-06 of its largest element"):
        of_gelu(lambda dx: first(dx, 1e-6))
    with pytest.raises(AssertionError, match="dx is off"):
        of_gelu(lambda dx: first(dx, np.nan))


@pytest.mark.parametrize("name", EXERCISES)
def test_repeated_cases_have_equal_input_names_and_gradients(name: str) -> None:
    """Otherwise their gradients could not be compared by name."""
    for one in EXERCISES[name].tries:
        problems = [one.entry(ours()).case(seed).problem() for seed in (1, 1, 2)]
        assert [list(problem.inputs) for problem in problems] == [list(problems[0].inputs)] * 3
        compare_with_ours(name, problems[0], problems[1], 1)
