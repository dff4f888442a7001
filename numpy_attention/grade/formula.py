"""Compares a gradient with our own: is it as exact as a formula makes it?

The checker measures the round-off of a backward by calling it again on inputs that differ in the last bits, and allows
an error of that size. A gradient made of differences is off by 1e-10 at every element and scatters as much, so it would
pass; noise might pass too. Here the right gradient is known: a backward from a formula agrees with it to about 14
digits.
"""

import numpy as np

from numpy_attention.gradcheck.problem import Problem
from numpy_attention.gradcheck.tolerance import random_cotangent
from numpy_attention.grade.guard import NotYours

NEAR, EXACT = 1e-7, 1e-12  # of the largest element: no element may be off by more, nor half of them by more


def as_exact_as_a_formula(subject: str, problem: Problem, right: Problem, seed: int) -> None:
    """The gradients agree with our own to the digits that a formula gives.

    Raises: AssertionError for a wrong gradient; NotYours for a right one with too few digits.
    """
    y, cache = problem.run(problem.inputs)
    dy = random_cotangent(y, seed)
    theirs, ours = problem.pull_back(dy, cache), right.gradients(right.inputs, dy)
    right_ones = {name: grad for name, grad in ours.items() if grad is not None}
    largest = max(float(np.max(np.abs(one), initial=0.0)) for one in (*dy, *right_ones.values()))
    off = []
    for name, grad in right_ones.items():
        # A gradient that is zero in theory holds round-off from the others and from dy.
        size = max(float(np.max(np.abs(grad), initial=0.0)), 1e-3 * largest) or 1.0
        shares = np.abs(np.asarray(theirs[name], np.float64) - grad) / size
        worst = float(np.max(shares, initial=0.0))
        assert worst <= NEAR, f"d{name} is off by {worst:.1e} of its largest element"
        off.append(shares[grad != 0])
    every = np.concatenate(off) if off else np.zeros(0)
    typical = float(np.median(every)) if every.size else 0.0
    if not typical <= EXACT:
        raise NotYours(
            f"the gradient is right to {-np.log10(typical):.0f} digits, and a formula gives 15: is it made of "
            f"differences? {subject}_backward is to come from a formula, out of dy and the cache; the grader brings "
            "differences of its own"
        )
