"""The checker as a whole: what it takes, what it says, and no false alarm."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problems.problem import problem_of_op


def test_the_package_is_the_function_and_holds_the_parts() -> None:
    import numpy_attention.gradcheck.strategies

    x = np.random.default_rng(0).standard_normal((2, 3))
    assert na.gradcheck(na.softmax, na.softmax_backward, {"x": x}).ok
    assert na.gradcheck.strategies is numpy_attention.gradcheck.strategies
    assert issubclass(na.gradcheck.GradientError, AssertionError)


def test_samples_look_at_so_many_elements_and_find_what_is_wrong_among_them(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, dw, db = ops.linear_backward(dy, cache)
        dw[1, 2] *= 1.001
        return dx, dw, db

    inputs = {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal((4, 5))}
    right = problem_of_op(ops.linear, ops.linear_backward, inputs, {})
    wrong = problem_of_op(ops.linear, backward, inputs, {})
    found = 0
    for seed in range(20):
        report = check(right, seed, sample=8)
        assert sum(int(np.isfinite(one.numeric).sum()) for one in report.arguments.values()) == 8
        assert report.calls < 8 * 5
        assert report.error < 1e-8
        try:
            check(wrong, seed, sample=8)
        except GradientError as error:
            alarm = error.report
            found += alarm is not None and alarm.arguments["w"].worst == (1, 2)
    assert 0 < found < 20  # one in four is to be expected: 8 of 32 elements


def test_a_vjp_is_caught_too(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    gradcheck_vjp(lambda x, w: x @ w, lambda dy, x, w: (dy @ w.T, x.T @ dy), (x, w))
    with pytest.raises(GradientError, match="dw: the sign is wrong"):
        gradcheck_vjp(lambda x, w: x @ w, lambda dy, x, w: (dy @ w.T, -x.T @ dy), (x, w))
