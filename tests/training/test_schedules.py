"""The learning rate over a run."""

import itertools
import math

import pytest

from numpy_attention.training.c26_schedules import warmup_cosine


def test_rate_rises_linearly_to_the_peak_in_the_warmup():
    rates = [warmup_cosine(step, 100, 4, 0.8, 0.1) for step in range(4)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_rate_falls_from_the_peak_to_the_minimum_at_the_last_step():
    rates = [warmup_cosine(step, 12, 2, 1.0, 0.2) for step in range(12)]
    assert rates[1] == 1.0
    assert rates[-1] == pytest.approx(0.2)
    assert all(a > b for a, b in itertools.pairwise(rates[1:]))
    assert rates[6] == pytest.approx(0.6)  # halfway down: progress 1/2
    assert rates[2] == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 10)) / 2)


def test_runs_without_warmup_or_with_warmup_only():
    assert warmup_cosine(0, 1, 0, 1.0, 0.25) == 0.25
    assert [warmup_cosine(step, 3, 5, 1.0) for step in range(3)] == pytest.approx([0.2, 0.4, 0.6])
    assert warmup_cosine(50, 10, 2, 1.0, 0.3) == pytest.approx(0.3)
