"""Properties of every entry of the catalogue, by which the gallery and the tutor find a mistake.

Each property is a function of an entry, a seed and sizes. It raises an AssertionError that describes the problem. Right
gradients are not enough: a backward may match a wrong forward, or overwrite its inputs, and still have right gradients.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import Arrays, Gradients, Outputs, random_cotangent
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.compare import same
from numpy_attention.tutor.entry import Case, Entry

Property = Callable[[Entry, int, Sizes | None], None]


class OtherDtype(AssertionError):
    """A result and the inputs have different dtypes; `widened` is true if the result is float64."""

    def __init__(self, message: str, dtype: np.dtype[Any]) -> None:
        super().__init__(message)
        self.widened = dtype == np.float64


def gradients_agree_with_differences(
    entry: Entry, seed: int, sizes: Sizes | None = None, sample: int | None = None
) -> None:
    """dx = J^T dy, as exactly as float64 differences can measure; of a sample of the elements, for many draws."""
    report = check(entry.case(seed, np.float64, sizes).problem(), seed, sample=sample, structure=sample is None)
    assert report.error <= entry.tolerance, f"{entry.name}: off by {report.error:.1e}, more than {entry.tolerance:.0e}"


def dtype_is_kept(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """float32 inputs give float32 outputs and float32 gradients; float64 inputs give float64."""
    for dtype in (np.float32, np.float64):
        y, _, grads = _run(entry.case(seed, dtype, sizes), seed)
        for one in y:
            if one.dtype != dtype:
                raise OtherDtype(f"{entry.name}: {np.dtype(dtype)} inputs give {one.dtype} outputs", one.dtype)
        for name, grad in grads.items():
            if grad is not None and grad.dtype != dtype:
                raise OtherDtype(f"{entry.name}: d{name} of {np.dtype(dtype)} is {grad.dtype}", grad.dtype)


def nothing_is_changed(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Inputs, dy and cache do not change; two equal calls of the forward, or of the backward, give equal results."""
    case = entry.case(seed, np.float64, sizes)
    problem = case.problem()
    inputs = copy.deepcopy(case.inputs)
    y, cache = problem.run(case.inputs)
    assert same(inputs, case.inputs), f"{entry.name}: the forward changed its inputs"
    dy = random_cotangent(y, seed)
    dy_before, cache_before = copy.deepcopy(dy), copy.deepcopy(cache)
    first = copy.deepcopy(problem.pull_back(dy, cache))
    assert same(dy_before, dy), f"{entry.name}: backward changed dy"
    assert same(cache_before, cache), f"{entry.name}: backward changed its cache"
    assert same(inputs, case.inputs), f"{entry.name}: backward changed the inputs"
    assert same(first, problem.pull_back(dy, cache)), f"{entry.name}: equal calls of backward give different results"
    assert same(y, problem.run(case.inputs)[0]), f"{entry.name}: equal calls of the forward give different results"


def forward_agrees(entry: Entry, right: Entry, seed: int) -> None:
    """The output equals the output of the right forward."""
    y, expected = (np.asarray(one.case(seed).problem().run(one.case(seed).inputs)[0][0]) for one in (entry, right))
    assert y.shape == expected.shape, f"{entry.name}: the forward gives {y.shape}, the formula {expected.shape}"
    wrong = ~(np.abs(y - expected) <= 1e-10 * max(1.0, float(np.max(np.abs(expected), initial=0.0))))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{entry.name}: the forward gives {y[at]:.9g} at {at}, the formula {expected[at]:.9g}")


def _run(case: Case, seed: int) -> tuple[Outputs, Outputs, Gradients]:
    problem = case.problem()
    inputs: Arrays = case.inputs
    y, cache = problem.run(inputs)
    dy = random_cotangent(y, seed)
    return y, dy, problem.pull_back(dy, cache)
