"""A report is at most a screen of text."""

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import gradcheck
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


def test_a_report_shows_at_most_six_wrong_arguments(rng: np.random.Generator) -> None:
    names = [f"x{i}" for i in range(9)]
    message, _ = caught(
        lambda **x: (sum(x.values()), None), lambda dy, cache: (2 * dy,) * 9,
        {name: rng.standard_normal(3) for name in names},
    )
    assert "... and 3 more: dx6, dx7, dx8" in message
