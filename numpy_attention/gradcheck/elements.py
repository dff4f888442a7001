"""Small arrays: every element by its own differences, judged by its own error bar."""

from dataclasses import dataclass, field

import numpy as np

from numpy_attention.gradcheck.differences import (
    EPS,
    Evaluate,
    Line,
    Outputs,
    first_step,
    is_kink,
    noise_of,
    quick,
    refined,
)
from numpy_attention.gradcheck.report import ArgumentReport

SAFETY = 8.0  # how many error bars apart is wrong
REFINED = 256  # at most so many doubtful elements of an argument get a tableau each


@dataclass
class Scalar:
    """L = sum(dy * y) near the arrays that `evaluate` reads, in float64."""

    evaluate: Evaluate
    y: Outputs
    dy: Outputs
    noise: float = field(init=False)  # round-off in L
    terms: float = field(init=False)  # the largest |dy * y|

    def __post_init__(self) -> None:
        self.noise = noise_of(self.y, self.dy)
        self.terms = max((float(np.max(np.abs(a * b), initial=0.0)) for a, b in zip(self.y, self.dy)), default=0.0)

    def line(self, x: np.ndarray, where: slice, direction: np.ndarray) -> Line:
        """L along a line through x."""
        return Line(self.evaluate, x, where, direction, self.y, self.dy, self.noise)


@dataclass
class Claim:
    """What a backward says about one argument, and the round-off to allow in it."""

    name: str
    gradient: np.ndarray
    base: float  # for all elements
    jitter: np.ndarray  # for each
    lenient: float = 0.0  # more, where the same backward is right in float64
    in_float64: np.ndarray | None = None


def check_elements(scalar: Scalar, x: np.ndarray, claim: Claim, chosen: np.ndarray | None = None) -> ArgumentReport:
    """Four calls an element; those in doubt get a tableau, and those still in doubt are looked at for a kink.

    `chosen` marks the elements to look at; without it, all of them. The others are NaN in the report.
    """
    claimed, jitter = claim.gradient.reshape(-1), claim.jitter.reshape(-1).copy()
    looked = np.ones(x.size, dtype=bool) if chosen is None else chosen
    numeric, error = np.full(x.size, np.nan), np.full(x.size, np.nan)
    kinks = np.zeros(x.size, dtype=bool)
    rms = float(np.sqrt(np.mean(x * x))) if x.size else 0.0
    lines = [scalar.line(x, slice(i, i + 1), np.ones(1)) for i in range(x.size)]
    steps = [first_step(float(value), rms) for value in x.reshape(-1)]
    with np.errstate(all="ignore"):
        for i in np.flatnonzero(looked):
            numeric[i], error[i], _, _ = quick(lines[i], steps[i])

        def size() -> float:
            known = np.where(looked, numeric, claimed)
            return float(np.max(np.abs(known[np.isfinite(known)]), initial=0.0))

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
        unmoved = EPS * max((float(np.max(np.abs(dy), initial=0.0)) for dy in scalar.dy), default=0.0)
        bar += np.where(np.abs(numeric) <= 16 * unmoved, SAFETY * unmoved / np.array(steps), 0.0)
        if claim.in_float64 is not None:
            right = np.abs(claim.in_float64.reshape(-1) - numeric) <= 1e-6 * np.abs(numeric) + SAFETY * error + floor
            bar += np.where(right, SAFETY * claim.lenient, 0.0)
        wrong = looked & ~(np.abs(claimed - numeric) <= bar) & ~kinks
    unresolved = wrong & ~np.isfinite(numeric)
    report = ArgumentReport(
        claim.name, f"d{claim.name}", claim.gradient, numeric.reshape(x.shape), bar.reshape(x.shape),
        (wrong & ~unresolved).reshape(x.shape), kinks.reshape(x.shape), sum(line.calls for line in lines))
    if unresolved.any():
        report.notes.append(
            f"d{claim.name}: {int(unresolved.sum())} elements on the edge of the domain have no difference")
    return report
