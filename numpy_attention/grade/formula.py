"""Compare the gradients of an answer with our own: are they as exact as a formula makes them?

The checker measures the round-off of a backward: it calls the backward again on inputs that differ in the last bits,
and allows an error of this size. But a gradient made of numerical differences is off by 1e-10 at every element, and it
also changes by 1e-10 in such a call, so it would pass. Random numbers might pass too. Here the right gradient is
known: a backward made of formulas agrees with it to about 14 digits.
"""

import numpy as np

from numpy_attention.gradcheck.problem import Problem
from numpy_attention.gradcheck.tolerance import random_cotangent
from numpy_attention.grade.guard import NotOwnWork

MAX_ERROR, MAX_MEDIAN = 1e-7, 1e-12  # relative to the largest element: limits of the maximum and the median error


def compare_with_ours(subject: str, problem: Problem, right: Problem, seed: int) -> None:
    """Check that the gradients agree with our own, to the digits that a formula gives.

    Raises: AssertionError for a wrong gradient; NotOwnWork for a right gradient with too few digits.
    """
    y, cache = problem.run(problem.inputs)
    dy = random_cotangent(y, seed)
    theirs, ours = problem.pull_back(dy, cache), right.gradients(right.inputs, dy)
    expected = {name: grad for name, grad in ours.items() if grad is not None}
    largest = max(float(np.max(np.abs(one), initial=0.0)) for one in (*dy, *expected.values()))
    errors = []
    for name, grad in expected.items():
        # A gradient that is zero in theory contains round-off of the size of dy and of the other gradients.
        size = max(float(np.max(np.abs(grad), initial=0.0)), 1e-3 * largest) or 1.0
        relative = np.abs(np.asarray(theirs[name], np.float64) - grad) / size
        worst = float(np.max(relative, initial=0.0))
        assert worst <= MAX_ERROR, f"d{name} is off by {worst:.1e} of its largest element"
        errors.append(relative[grad != 0])
    every = np.concatenate(errors) if errors else np.zeros(0)
    typical = float(np.median(every)) if every.size else 0.0
    if not typical <= MAX_MEDIAN:
        raise NotOwnWork(
            f"the gradient is right to {-np.log10(typical):.0f} digits, but a formula gives 15: is it made of "
            f"numerical differences? {subject}_backward must use a formula that contains dy and the cache; the grader "
            "compares with numerical differences itself"
        )
