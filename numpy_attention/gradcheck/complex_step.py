"""The second way to a derivative: a step into the complex plane, where nothing is subtracted

A difference subtracts two numbers that are nearly equal, and half of the digits are lost. Go sideways instead, by
i h v with h = 1e-100:

    y(x + i h v) = y(x) + i h J v - h^2 (...)        so        J v = Im y(x + i h v) / h

The real part computes y as before, the imaginary part carries the derivative, and h^2 is below the last digit of
everything. The result is J v up to the round-off of the function itself: no step to choose, no error to estimate.

The function runs unchanged, on complex arrays. NumPy orders complex numbers by their real parts, so a maximum, a
comparison and a mask take the branch that they take on the real line. But abs, sign or a variance of NumPy's are not
analytic: there the imaginary part is something else. So the complex step is used only where it agrees with
differences, along random directions through all elements at once (`elements.py`).

Source: Squire, Trapp, Using Complex Variables to Estimate Derivatives of Real Functions (1998).
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping

import numpy as np

from numpy_attention.backend import COMPLEX
from numpy_attention.gradcheck.line import EPS, Outputs, largest
from numpy_attention.gradcheck.problem import Arrays, Problem, is_float

H = 1e-100
SAME = 1e-3  # of the largest output: results for real and for complex arrays may differ by so much


class NoComplexStep(Exception):
    """The function cannot be run on complex arrays; the message says why."""


class ComplexStep:
    """Derivatives of L = sum(dy y) by complex steps, on copies of the arrays.

    Raises: NoComplexStep for a function that does not take complex arrays, or gives another result for them.
    """

    def __init__(self, problem: Problem, exact: Arrays, y: Outputs | None, dy: Outputs) -> None:
        if problem.complex:
            raise NoComplexStep("its own numbers are complex")
        self.problem, self.arrays = problem, in_complex(exact)
        self.evaluate = problem.bind(self.arrays)
        self.dy, self.calls = dy, 0
        try:
            at_rest = self._run()
        except Exception as error:  # whatever a function may raise that was not written for complex numbers
            raise NoComplexStep(f"{type(error).__name__}: {error}") from None
        for one, real in zip(at_rest, y, strict=True) if y is not None else ():
            # Close is enough: round-off may be large, and what is another function is found out by differences.
            close = SAME * largest(real) + 64 * EPS
            if one.shape != real.shape or not largest(one.real - real) <= close:
                raise NoComplexStep("it gives another result for complex arrays")
            if one.imag.any():
                raise NoComplexStep("it makes complex numbers of real ones")

    def along(self, name: str, where: slice, direction: np.ndarray) -> tuple[float, float]:
        """The derivative of L along a stretch of the flattened array, and how large the terms of its sum are."""
        x = self.arrays[name].reshape(-1)[where]
        return self._step([(x, direction)])

    def through(self, directions: Mapping[str, np.ndarray]) -> tuple[float, float]:
        """The same along a direction through several arrays at once."""
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
    """Within, the ops of this book take complex arrays, and it is an error to throw away an imaginary part."""
    token = COMPLEX.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            yield
    finally:
        COMPLEX.reset(token)


def in_complex(arrays: Arrays) -> Arrays:
    """Copies of the arrays of floats in complex128; all else as it is."""
    return {
        name: np.array(value, dtype=np.complex128, order="C") if is_float(value) else value
        for name, value in arrays.items()
    }
