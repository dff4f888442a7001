"""A gradient in float32 or float16: right means, close to what the same backward says in float64.

Differences and complex steps judge the backward run in float64, to the last digits. What it says in its own dtype is
then held to that, element by element, and no difference is needed: one element of 100,000 stands out. The bar is the
round-off of the dtype, measured (`claims.py`) and, in an array of many elements, seen in most of them: an error bar
made for the worst of sums is not granted where nine elements of ten need a hundredth of it.
"""

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim
from numpy_attention.gradcheck.numbers.line import Outputs, largest
from numpy_attention.gradcheck.numbers.round_off import SAFETY
from numpy_attention.gradcheck.problems.problem import Gradients, Problem
from numpy_attention.gradcheck.problems.trees import Arrays
from numpy_attention.gradcheck.report import ArgumentReport

MANY = 64  # elements of an array that can tell what is usual


def in_double(problem: Problem, exact: Arrays, dy: Outputs, grads: Gradients) -> Gradients | None:
    """What the same backward says in float64; None if that is what it has said, or if it cannot be run there."""
    if all(np.array_equal(exact[name].dtype, problem.inputs[name].dtype) for name in problem.differentiable):
        return None
    try:
        again = problem.gradients(exact, dy)
    except (TypeError, ValueError):  # written for one dtype only
        return None
    fits = all(
        grad is None or ((one := np.asarray(again.get(name))).shape, one.dtype.kind) == (grad.shape, "f")
        for name, grad in grads.items()
    )
    return {name: None if grad is None else np.array(grad) for name, grad in again.items()} if fits else None


def hold_to_float64(report: ArgumentReport, low: Claim) -> None:
    """Judge the gradient in its own dtype too; the report then shows that one."""
    off = np.abs(low.gradient - report.analytic)
    base = low.base + low.lenient
    if off.size >= MANY:
        base = min(base, max(4 * float(np.quantile(off, 0.9)), low.eps * largest(low.gradient)))
    bar = SAFETY * (base + low.jitter)
    too_far = ~(off <= bar) & ~report.kinks
    only_here = too_far & ~report.wrong
    # Where no witness was asked about an element, float64 is the witness.
    report.numeric = np.where(only_here & np.isnan(report.numeric), report.analytic, report.numeric)
    report.analytic, report.resolution = low.gradient, report.resolution + bar
    report.wrong = report.wrong | too_far
    if only_here.any() and not (report.wrong & ~only_here).any():
        report.notes.append(f"d{report.name}: the same backward is right in float64")
