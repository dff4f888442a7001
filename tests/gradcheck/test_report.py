"""A report is at most a screen of text."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp
from tests.gradcheck.planted import caught, times, with_mistake


def test_the_seed_repeats_the_report(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    wrong = with_mistake(ops.softmax_backward, times(1.01, (0, 1)))
    first, second, other = (caught(ops.softmax, wrong, {"x": x}, seed=seed)[0] for seed in (5, 5, 6))
    assert first == second != other


def test_a_right_gradient_is_reported_in_two_lines(rng: np.random.Generator) -> None:
    report = gradcheck(ops.softmax, ops.softmax_backward, {"x": rng.standard_normal((3, 4))})
    first, last = str(report).splitlines()
    assert first.startswith("gradcheck softmax: right, worst relative difference ")
    assert last == f"{report.calls} calls of softmax; repeat with seed=0"
    assert report.ok
    assert report.wrong == []


def test_a_report_shows_the_worst_element_and_right_gradients(rng: np.random.Generator) -> None:
    inputs = {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal((4, 5))}
    message, report = caught(ops.linear, with_mistake(ops.linear_backward, times(3.0, (2, 1)), 1), inputs)
    (wrong,) = report.wrong
    assert wrong.symbol == "dw"
    assert wrong.worst == (2, 1)
    assert f"analytic {wrong.analytic[2, 1]:.9g}" in " ".join(message.split())
    assert "ratio 3 " in message
    assert "right: dx" in message
    assert report.error == pytest.approx(2 * abs(wrong.numeric[2, 1]) / wrong.size)


def test_the_first_line_counts_the_elements_that_could_not_be_checked() -> None:
    report = gradcheck(ops.relu, ops.relu_backward, {"x": np.array([0.0, 1.0])})
    assert str(report).startswith("gradcheck relu: right; 1 of 2 elements not checked (at a corner); the others: worst")
    message, report = caught(
        lambda x, w: (np.maximum(x, 0) * w, (x, w)), lambda dy, cache: (dy * (cache[0] > 0) * cache[1], dy),
        {"x": np.array([0.0, 2.0]), "w": np.array([2.0, 3.0])},
    )
    assert "gradcheck <lambda>: dw wrong" in message
    assert "1 of 4 elements not checked (at a corner)" in message


@pytest.mark.parametrize("wrong", [times(1 + 1e-7), times(1 + 1e-6, (0, 1))], ids=["one factor", "one element"])
def test_a_plain_mistake_is_not_offered_as_an_error_to_allow(wrong: Any, rng: np.random.Generator) -> None:
    message, report = caught(ops.softmax, with_mistake(ops.softmax_backward, wrong), {"x": rng.standard_normal((3, 4))})
    assert report.error < 1e-5
    assert "rtol=" not in message


def test_the_gradient_of_an_argument_called_y_and_the_upstream_gradient_have_different_names() -> None:
    with pytest.raises(GradientError) as caught:
        gradcheck_vjp(lambda y: y**3, lambda dy, y: 3 * y * dy, (np.array([0.5, 2.0, 3.0]),))
    assert "d(argument y) wrong" in str(caught.value)
    assert "d(argument y)[2]" in str(caught.value)
