"""Large arrays: one wrong element of a million is found in a bounded number of calls."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck
from tests.gradcheck.planted import caught, spoilt


def test_one_element_of_a_million_off_by_one_percent(rng: np.random.Generator) -> None:
    def cube(x: np.ndarray) -> Any:
        return x * x * x, x

    def cube_backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = 3 * x * x * dy
        dx[417, 903] *= 1.01
        return dx

    x = rng.standard_normal((1000, 1000))
    x[417, 903] = 0.7
    message, report = caught(cube, cube_backward, {"x": x})
    assert report.arguments["x"].worst == (417, 903)
    assert report.arguments["x"].wrong.sum() == 1
    assert report.calls <= 400
    assert "dx[417, 903]" in message
    assert "ratio 1.01" in message


def test_two_elements_of_many_that_would_cancel(rng: np.random.Generator) -> None:
    x = rng.standard_normal((60, 70))

    def spoil(grad: np.ndarray) -> np.ndarray:
        grad[3, 4] += 0.01
        grad[50, 60] -= 0.01
        return grad

    _, report = caught(ops.silu, spoilt(ops.silu_backward, spoil), {"x": x})
    assert {tuple(index) for index in np.argwhere(report.arguments["x"].wrong)} == {(3, 4), (50, 60)}


def test_a_large_array_is_checked_in_few_calls(rng: np.random.Generator) -> None:
    report = gradcheck(ops.silu, ops.silu_backward, {"x": rng.standard_normal((200, 300))})
    assert report.calls <= 40
    assert "random directions" in str(report)
    assert report.error < 1e-9


def test_many_wrong_elements_of_a_large_array_cost_a_bounded_number_of_calls(rng: np.random.Generator) -> None:
    with pytest.raises(GradientError, match="twice what it should be") as failure:
        gradcheck(ops.silu, lambda dy, cache: 2 * ops.silu_backward(dy, cache), {"x": rng.standard_normal((100, 100))})
    assert failure.value.report is not None
    assert failure.value.report.calls <= 1700
