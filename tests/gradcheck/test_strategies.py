"""Hypothesis strategies: sizes agree by name, and failures shrink to the smallest sizes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from numpy_attention.gradcheck.spec import draw_inputs
from numpy_attention.gradcheck.strategies import DrawnInputs, inputs

ATTENTION = "q: B H T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v, mask: bool T_q T_k; H = G*H_kv"


@settings(max_examples=50)
@given(inputs(ATTENTION, at_least={"G": 2}))
def test_head_counts_divide_and_lengths_agree(drawn: DrawnInputs) -> None:
    assert drawn["q"].shape[1] % drawn["k"].shape[1] == 0
    assert drawn["q"].shape[1] > drawn["k"].shape[1]
    assert drawn["k"].shape[2] == drawn["v"].shape[2] == drawn["mask"].shape[1]
    assert sum(value.size for value in drawn.values()) <= 400


def test_an_optional_argument_is_sometimes_absent() -> None:
    seen = set()

    @settings(max_examples=40, database=None, derandomize=True)
    @given(inputs("x: ... d, b?: d"))
    def look(drawn: DrawnInputs) -> None:
        seen.add(drawn["b"] is None)

    look()
    assert seen == {True, False}


def first_failure(vjp: Any) -> DrawnInputs:
    failed: list[DrawnInputs] = []

    @settings(max_examples=25, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(inputs("x: d", largest=3))
    def holds(drawn: DrawnInputs) -> None:
        try:
            gradcheck_vjp(lambda x: x + x**3, vjp, drawn)
        except GradientError:
            failed.append(drawn)
            raise

    with pytest.raises(GradientError):
        holds()
    return failed[-1]


@pytest.mark.slow
def test_a_failure_has_special_values_only_if_necessary() -> None:
    needed = first_failure(lambda dy, x: dy * np.where(x == 0, 2.0, 1 + 3 * x * x))
    assert needed.special
    assert "; special values; x: float64" in repr(needed)
    assert np.array_equal(draw_inputs(needed.spec, needed.sizes, needed.seed, special=True)["x"], needed["x"])
    needless = first_failure(lambda dy, x: dy * (1 + 2 * x * x))
    assert not needless.special
    assert np.array_equal(draw_inputs(needless.spec, needless.sizes, needless.seed)["x"], needless["x"])


@pytest.mark.slow
def test_a_failure_shrinks_to_the_smallest_sizes_that_still_fail() -> None:
    failed: list[DrawnInputs] = []

    def transposes(dy: np.ndarray, cache: Any) -> Any:
        dx, dw = dy @ cache[1].T, cache[0].T @ dy
        return dx, dw.T if dw.shape[0] == dw.shape[1] else dw

    @settings(max_examples=200, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(inputs("x: B n, w: n m"))
    def holds(drawn: DrawnInputs) -> None:
        try:
            gradcheck(lambda x, w: (x @ w, (x, w)), transposes, drawn)
        except GradientError:
            failed.append(drawn)
            raise

    with pytest.raises(GradientError, match=r"dw: transposed|dw is wrong"):
        holds()
    assert failed[-1].sizes == {"B": 1, "n": 2, "m": 2}  # at width 1 a transpose does no harm
    assert "sizes B=1, n=2, m=2; seed" in repr(failed[-1])
