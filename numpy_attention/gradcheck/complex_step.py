"""The second reference derivative: a step into the complex plane, without a subtraction

A difference subtracts two numbers that are nearly equal, so half of the digits are lost. Step in the imaginary
direction instead, by i h v with h = 1e-100:

    y(x + i h v) = y(x) + i h J v - h^2 (...)        so        J v = Im y(x + i h v) / h

The real part is y as before, the imaginary part holds the derivative, and h^2 is too small to change any digit. The
result is J v up to the round-off of the function: you need not choose a step or estimate an error.

The function runs unchanged on complex arrays. NumPy orders complex numbers by their real parts, so a maximum, a
comparison and a mask take the same branch as for real numbers. But abs, sign and np.var are not analytic: for them the
imaginary part is not the derivative. So the complex step is used only if differences confirm it. The test is one random
direction through all arrays at once: complex step and differences must find the same derivative along this direction.
If the complex step is wrong in one element, the two derivatives differ. No element is left out: all elements change by
the same amount or, if no single step suits all, each in proportion to its size (`confirmed`).

Then one call for each element gives the derivative to the last digit, and `check_exactly` compares it with the
gradient. An element that disagrees is checked again before it is called wrong: at a corner more than one gradient is
right, and if differences contradict the complex step, the complex step is not used at all.

Source: Squire, Trapp, Using Complex Variables to Estimate Derivatives of Real Functions (1998).
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping

import numpy as np

from numpy_attention.backend import COMPLEX
from numpy_attention.gradcheck.elements import ENOUGH, check_elements
from numpy_attention.gradcheck.line import EPS, Outputs, first_step, is_kink, largest, quick, refined, rms, sizes
from numpy_attention.gradcheck.problem import Arrays, Problem, in_float64, is_float
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.tolerance import (
    FAR,
    FARTHEST,
    SAFETY,
    AnalyticGradient,
    DerivativeOf,
    Move,
    Point,
    RoundOff,
    floor_of,
    judge,
    jumps,
    tolerance,
)

H = 1e-100
SAME = 1e-3  # relative to the largest output: results for real and for complex arrays may differ by this much
ATTEMPTS = ((2.0**-11, 6), (2.0**-11, 20), (2.0**-25, 20))  # first step, step count; small steps cross no corner
NOISY = (*ATTEMPTS, (2.0**-5, 20))  # if the function differs from run to run
ROUNDED = 1e-2  # relative to the gradient: round-off is never larger, unless the gradient jumps
ON_A_STAIR = 1e-9  # relative to the gradient: the error of x (exp(x - l) - 1) for x and l of a few hundred
RESOLVED = 1e-5  # relative to the terms: a difference with a larger error confirms nothing


class NoComplexStep(Exception):
    """The function cannot run on complex arrays; the message gives the reason."""


class ComplexStep:
    """Derivatives of L = sum(dy y) by complex steps, on copies of the arrays.

    Raises: NoComplexStep for a function that rejects complex arrays or returns a different result for them.
    """

    def __init__(self, problem: Problem, exact: Arrays, y: Outputs | None, dy: Outputs) -> None:
        if problem.complex:
            raise NoComplexStep("its inputs or outputs are complex")
        self.problem, self.arrays = problem, in_complex(exact)
        self.evaluate = problem.bind(self.arrays)
        self.dy, self.calls = dy, 0
        try:
            at_rest = self._run()
        except Exception as error:  # any error, in a function that was not written for complex numbers
            raise NoComplexStep(f"{type(error).__name__}: {error}") from None
        for one, real in zip(at_rest, y, strict=True) if y is not None else ():
            # A rough comparison is enough: round-off may be large, and differences find a wrong derivative later.
            close = SAME * largest(real) + 64 * EPS
            if one.shape != real.shape or not largest(one.real - real) <= close:
                raise NoComplexStep("it returns a different result for complex arrays")
            if one.imag.any():
                raise NoComplexStep("it returns complex numbers for real inputs")

    def along(self, name: str, where: slice, direction: np.ndarray) -> tuple[float, float]:
        """The derivative of L along a slice of the flattened array, and the size of the terms of its sum."""
        return self._step([(self.arrays[name].reshape(-1)[where], direction)])

    def through(self, directions: Mapping[str, np.ndarray]) -> tuple[float, float]:
        """The same along a direction through several arrays."""
        return self._step([(self.arrays[name], v) for name, v in directions.items()])

    def _step(self, moved: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
        for x, direction in moved:
            x.imag = H * direction
        try:
            y = self._run()
        finally:
            for x, _ in moved:
                x.imag = 0.0
        self.calls += 1
        terms = [dy * (one.imag / H) for dy, one in zip(self.dy, y, strict=True)]
        return sum(float(one.sum()) for one in terms), sum(float(np.abs(one).sum()) for one in terms)

    def _run(self) -> Outputs:
        with complex_numbers(), np.errstate(all="ignore"):
            return self.evaluate()


@contextlib.contextmanager
def complex_numbers() -> Iterator[None]:
    """In this context the ops of this package take complex arrays, and discarding an imaginary part is an error."""
    token = COMPLEX.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            yield
    finally:
        COMPLEX.reset(token)


def in_complex(arrays: Arrays) -> Arrays:
    """Copies of the arrays of floats in complex128; other values are unchanged."""
    return {
        name: np.array(value, dtype=np.complex128, order="C") if is_float(value) else value
        for name, value in arrays.items()
    }


def complex_steps(
    point: Point, names: list[str], reference: str, rng: np.random.Generator, moving: Mapping[str, np.ndarray]
) -> tuple[dict[str, ComplexStep], str, int]:
    """The complex step of each array, if differences confirm it; the reason if not; and the number of calls."""
    if reference == "differences":
        return {}, "", 0
    try:
        step = ComplexStep(point.problem, point.exact, point.scalar.y, point.scalar.dy)
    except NoComplexStep as error:
        if reference == "complex":
            raise point.problem.error(f"no complex step: {error}; use reference='both'") from None
        return {}, str(error), 0
    steps = dict.fromkeys(names, step)
    doubt, calls = confirmed(point, names, step, rng, moving) if reference == "both" else ("", 0)
    why_not = ""
    for name in names if doubt else ():
        doubt, more = confirmed(point, [name], step, rng, moving)
        calls += more
        if doubt:
            del steps[name]
            why_not = doubt
    return steps, why_not, calls


def confirmed(
    point: Point, names: list[str], step: ComplexStep, rng: np.random.Generator, moving: Mapping[str, np.ndarray]
) -> tuple[str, int]:
    """The reason why differences do not confirm the complex step, "" if they confirm it; and the number of calls.

    `moving` marks the elements that move.
    """
    exact, scalar, calls, other = point.exact, point.scalar, 0, False
    for alike in (True, False):
        directions = {}
        for name in names:
            x = exact[name]
            size = np.full(x.shape, rms(x) or 1.0) if alike else sizes(x)
            v = size * rng.choice([-1.0, 1.0], size.shape) * rng.uniform(1.0, 1.5, size.shape)
            directions[name] = v * moving[name].reshape(v.shape)
        try:
            derivative, terms = step.through(directions)
        except Exception as error:  # the function takes complex arrays, but not this step
            return f"{type(error).__name__}: {error}", calls
        line = scalar.through((exact[name] for name in names), directions.values())
        floor = floor_of(EPS, scalar.terms, terms)
        for first, levels in NOISY if point.problem.nondet else ATTEMPTS:
            with np.errstate(all="ignore"):
                found = refined(line, first, levels, measure=False)
            known = found.error <= (ROUNDED if point.problem.nondet else RESOLVED) * max(scalar.terms, terms)
            if known and abs(found.value - derivative) <= tolerance(found.error, 0.0, floor):
                return "", calls + line.calls
            other |= known
        calls += line.calls
    finds = "find another derivative along a random direction" if other else "have too large an error along a direction"
    return f"differences {finds} of {' and '.join(names[:3])}", calls


def check_exactly(
    point: Point, analytic: AnalyticGradient, step: ComplexStep, chosen: np.ndarray
) -> ArgumentReport | None:
    """Compare the elements that `chosen` marks with complex steps; the others are NaN in the report.

    Returns None if differences contradict the complex step.
    """
    found, before = ArgumentReport.unseen(analytic.name, analytic.gradient), step.calls
    terms = np.zeros(found.wrong.size)
    for i in np.flatnonzero(chosen):
        found.numeric[i], terms[i] = step.along(analytic.name, slice(i, i + 1), np.ones(1))
    floor = floor_of(EPS, point.scalar.terms, largest(terms))
    off = np.abs(found.analytic - found.numeric)
    near = off <= tolerance(0.0, analytic.base, floor)
    size = max(largest(found.analytic), largest(found.numeric[chosen]))
    # Where a gradient jumps, it is right or wrong at this point itself: its change nearby is not round-off.
    jitter = analytic.jitter.reshape(-1)
    jumping = jumps(jitter, size) & ~near
    jitter = np.where(jumping | near, 0.0, jitter)
    judge(found, analytic, chosen, 0.0, jitter, floor)
    left = np.flatnonzero(found.wrong)
    left = left[np.argsort(-np.nan_to_num(off[left], nan=np.inf))]

    def derivatives_at(move: Move) -> DerivativeOf:
        there = ComplexStep(point.problem, in_float64(move.arrays), None, move.dy)
        return lambda i: (there.along(analytic.name, slice(i, i + 1), np.ones(1))[0], 1)

    round_off = RoundOff(point, analytic.name, derivatives_at)
    while left.size:  # a few at a time: if all of them are wrong, the others are not checked again
        some, left = left[:ENOUGH], left[ENOUGH:]
        look = _look_with_differences(point, analytic, found, some, jumping[some], jitter[some], size, floor, round_off)
        if look is None:
            return None
        jitter[some], found.kinks[some] = look
        judge(found, analytic, chosen, 0.0, jitter, floor)
        if found.wrong[some].all():
            break
    found.calls += step.calls - before + round_off.calls
    found.reference = "complex step"
    return found.shaped(analytic.gradient.shape)


def _look_with_differences(
    point: Point, analytic: AnalyticGradient, found: ArgumentReport, some: np.ndarray, jumping: np.ndarray,
    jitter: np.ndarray, size: float, floor: float, round_off: RoundOff,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The round-off part of the jitter of these elements, and which elements are at corners.

    Returns None if differences contradict the complex step.
    """
    derivative = found.numeric[some]
    off = np.abs(found.analytic[some] - derivative)
    x = np.abs(point.exact[analytic.name].reshape(-1)[some])
    rounded = off * x <= 1024 * EPS * point.scalar.terms  # a few last digits of x change L by as much
    small = np.flatnonzero((off <= ROUNDED * size) | rounded | jumping)
    scatter = round_off(some[small])
    tiny = off[small] <= 1024 * EPS * point.scalar.terms
    scatter[tiny] = np.maximum(scatter[tiny], round_off(some[small][tiny], FAR))
    left = (off[small] <= ON_A_STAIR * size) & (off[small] > tolerance(0.0, analytic.base + scatter, floor))
    scatter[left] = np.maximum(scatter[left], round_off(some[small][left], FARTHEST) / SAFETY)
    excused = np.zeros(some.size, dtype=bool)
    excused[small] = off[small] <= tolerance(0.0, analytic.base + scatter, floor)
    jitter = jitter.copy()
    jitter[excused] = scatter[excused[small]]

    again = np.zeros(some.size, dtype=bool)
    again[small] = jumps(scatter, size)
    for k in np.flatnonzero(~excused & ~again):
        again[k] = jumping[k] or not _smooth(point, analytic, int(some[k]), found, floor)
    kinks = np.zeros(some.size, dtype=bool)
    if again.any():
        marked = np.zeros(found.wrong.size, dtype=bool)
        marked[some[again]] = True
        by_differences = check_elements(point, analytic, marked)
        found.calls += by_differences.calls
        kinks = by_differences.kinks.reshape(-1)[some]
        agrees = np.abs(by_differences.numeric.reshape(-1)[some] - derivative) <= (
            by_differences.resolution.reshape(-1)[some] + floor)
        if (again & ~excused & ~kinks & ~agrees).any():
            return None
    return jitter, kinks


def _smooth(point: Point, analytic: AnalyticGradient, i: int, found: ArgumentReport, floor: float) -> bool:
    """Whether a few calls find no corner at element i, and the same derivative as the complex step."""
    x = point.exact[analytic.name]
    line, h = point.scalar.line(x, slice(i, i + 1), np.ones(1)), first_step(float(x.reshape(-1)[i]), rms(x))
    with np.errstate(all="ignore"):
        first = quick(line, h)
        near = abs(first.value - found.numeric[i]) <= tolerance(first.error, 0.0, floor)
        smooth = near and not is_kink(line, first, h)
    found.calls += line.calls
    return smooth
