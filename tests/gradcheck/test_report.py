"""A report is at most a screen of text."""

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import gradcheck
from numpy_attention.gradcheck.report import ArgumentReport, Report
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


def test_a_report_shows_six_unresolved_arguments_and_four_notes() -> None:
    zero, no = np.zeros(2), np.zeros(2, dtype=bool)
    report = Report("noisy", {}, 0, 0, notes=["the last"])
    for i in range(9):
        found = ArgumentReport(f"x{i}", zero, zero, zero, no, no, 0, doubt=zero + 0.1, unresolved=~no)
        found.notes = [f"note {i}"]
        report.arguments[found.name] = found
    lines = str(report).splitlines()
    names = ", ".join(f"dx{i}" for i in range(9))
    assert lines[0] == f"gradcheck noisy: {names} not resolved: the derivative is known to too few digits"
    assert [line.split(":")[0] for line in lines[1:7]] == [f"dx{i} (2,)" for i in range(6)]
    assert lines[7:-1] == [f"note {i}" for i in range(4)]


def test_fits_compares_only_known_derivatives() -> None:
    right, no = np.array([1.0, -2.0, np.nan]), np.zeros(3, dtype=bool)
    report = ArgumentReport("x", np.zeros(3), right, np.zeros(3), ~no, no, 0, size=2.0)
    assert report.fits(np.array([1.0 + 1e-7, -2.0, 5.0]))
    for odd in (np.array([1.0, -2.1, 5.0]), np.array([1.0, -2.0]), np.array([np.nan, -2.0, 5.0]), None):
        assert not report.fits(odd)
    nowhere = ArgumentReport("x", np.zeros(1), np.full(1, np.nan), np.zeros(1), ~no[:1], no[:1], 0)
    assert not nowhere.fits(np.zeros(1))


def test_an_unseen_gradient_is_nan_and_gets_its_shape() -> None:
    found = ArgumentReport.unseen("x", np.arange(6.0).reshape(2, 3))
    found.numeric[4], found.resolution[4], found.wrong[4] = 2.0, 0.5, True
    assert not found.kinks.any(), "two arrays, not one"
    report = found.shaped((2, 3))
    assert report.worst == (1, 1)
    assert np.isnan(report.numeric).sum() == np.isnan(report.resolution).sum() == 5
    assert report.shape == report.resolution.shape == report.doubt.shape == (2, 3)


def test_a_gradient_that_is_wrong_only_along_a_direction_has_a_report(rng: np.random.Generator) -> None:
    """Then no element was compared, and the largest error of an element is 0."""
    argument = ArgumentReport.unseen("x", rng.standard_normal(3))
    argument.wrong[1] = True
    assert "dx (3,): 1 of 0 compared (of 3) elements wrong" in str(Report("f", {"x": argument}, 0, 7))
