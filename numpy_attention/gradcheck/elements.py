"""Small arrays: every element by its own differences, judged by its own error bar.

Four calls give a first derivative, good enough for nearly all elements. Those in doubt get a whole tableau, and those
still in doubt are looked at for a kink: at a corner any slope between the left one and the right one is accepted.
An element is wrong when it is off by more than its bar:

    bar = 8 (error of the difference + jitter) + floor         floor: the round-off that no difference can see through
"""

import numpy as np

from numpy_attention.gradcheck.claims import Claim
from numpy_attention.gradcheck.differences import first_step, is_kink, quick, refined
from numpy_attention.gradcheck.line import EPS, Scalar, largest, rms
from numpy_attention.gradcheck.report import ArgumentReport

SAFETY = 8.0  # how many error bars apart is wrong
REFINED = 256  # at most so many doubtful elements of an argument get a tableau each


def check_elements(scalar: Scalar, x: np.ndarray, claim: Claim, chosen: np.ndarray | None = None) -> ArgumentReport:
    """Look at the elements that `chosen` marks; without it, at all. The others are NaN in the report."""
    claimed, jitter = claim.gradient.reshape(-1), claim.jitter.reshape(-1).copy()
    looked = np.ones(x.size, dtype=bool) if chosen is None else chosen
    numeric, error = np.full(x.size, np.nan), np.full(x.size, np.nan)
    kinks = np.zeros(x.size, dtype=bool)
    usual = rms(x)
    lines = [scalar.line(x, slice(i, i + 1), np.ones(1)) for i in range(x.size)]
    steps = [first_step(float(value), usual) for value in x.reshape(-1)]
    with np.errstate(all="ignore"):
        for i in np.flatnonzero(looked):
            numeric[i], error[i], _, _ = quick(lines[i], steps[i])

        def size() -> float:
            known = np.where(looked, numeric, claimed)
            return largest(known[np.isfinite(known)])

        floor = 32 * EPS * scalar.terms + SAFETY * claim.base
        # In doubt: off by more than a tight tolerance, or than an error bar that four calls may have too short by luck.
        off = np.abs(claimed - numeric)
        tight = np.minimum(1e-8 * np.abs(numeric), SAFETY * (error + jitter))
        doubtful = np.flatnonzero(looked & ~(off <= tight + floor + 1e-11 * size()))
        for i in doubtful[np.argsort(-np.nan_to_num(off[doubtful], nan=np.inf))][:REFINED]:
            derivative = refined(lines[i], steps[i])
            if np.isfinite(derivative.value):
                numeric[i], error[i] = derivative.value, derivative.error
            # At a kink the backward itself jumps when x is moved by an ulp: leave that jitter out of the question.
            bare = SAFETY * error[i] + floor + 1e-11 * size()
            if not abs(claimed[i] - numeric[i]) <= bare and is_kink(lines[i], derivative, steps[i]):
                low, high = sorted((derivative.left, derivative.right))
                slack = 1e-3 * max(abs(low), abs(high))
                kinks[i] = low - slack <= claimed[i] <= high + slack
                jitter[i] = 0.0
        bar = SAFETY * (error + jitter) + floor + 1e-11 * size()
        # Not a bit has moved, or as good as none: what happens below the last bit of a 1 inside the function, as in
        # log(1 + 1e-20), is lost.
        unmoved = EPS * max(map(largest, scalar.dy), default=0.0)
        bar += np.where(np.abs(numeric) <= 16 * unmoved, SAFETY * unmoved / np.array(steps), 0.0)
        if claim.in_float64 is not None:
            right = np.abs(claim.in_float64.reshape(-1) - numeric) <= 1e-6 * np.abs(numeric) + SAFETY * error + floor
            bar += np.where(right, SAFETY * claim.lenient, 0.0)
        wrong = looked & ~(np.abs(claimed - numeric) <= bar) & ~kinks
    unresolved = wrong & ~np.isfinite(numeric)
    report = ArgumentReport(
        claim.name, claim.gradient, numeric.reshape(x.shape), bar.reshape(x.shape),
        (wrong & ~unresolved).reshape(x.shape), kinks.reshape(x.shape), sum(line.calls for line in lines),
    )
    if unresolved.any():
        report.notes.append(
            f"d{claim.name}: {int(unresolved.sum())} elements on the edge of the domain have no difference"
        )
    return report
