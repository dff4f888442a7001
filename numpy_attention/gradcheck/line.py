"""What is differenced: L = sum(dy * y), a single number, along a line through one of the arrays.

With a dy drawn at random, dL/dx = J^T dy is just what a backward must return. So one number tells of all outputs:

    t  ->  L(x + t v) - L(x) = sum(dy * (y(x + t v) - y(x)))

where v is a unit vector (one element) or a random direction (all elements at once). The difference is taken output by
output before it is summed, so that outputs which stay still bring no round-off. Everything here is float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Outputs = tuple[np.ndarray, ...]
Evaluate = Callable[[], Outputs]

EPS = float(np.finfo(np.float64).eps)


@dataclass
class Scalar:
    """L near the arrays that `evaluate` reads; y is what it gives there."""

    evaluate: Evaluate
    y: Outputs
    dy: Outputs
    noise: float = field(init=False)  # the round-off in L: half a last bit of every output, added like noise
    terms: float = field(init=False)  # the largest |dy * y|

    def __post_init__(self) -> None:
        products = [dy * y for dy, y in zip(self.dy, self.y, strict=True)]
        self.noise = EPS * math.sqrt(sum(float(np.sum(one * one)) for one in products))
        self.terms = max(map(largest, products), default=0.0)

    def line(self, x: np.ndarray, where: slice, direction: np.ndarray) -> "Line":
        """L along a line through x."""
        return Line(self, x, where, direction)


class Line:
    """t -> L(x + t v) - L(x), where x is moved in place and always put back.

    `where` is the stretch of the flattened x that moves; `direction` is how far each element goes per unit of t.
    """

    def __init__(self, scalar: Scalar, x: np.ndarray, where: slice, direction: np.ndarray) -> None:
        if not x.flags.c_contiguous:
            raise ValueError("Line: x must be C-contiguous, or moving it would move a copy")
        self.scalar, self.x, self.direction = scalar, x.reshape(-1)[where], direction
        self.start = self.x.copy()
        self.calls = 0

    @property
    def noise(self) -> float:
        """The round-off in L."""
        return self.scalar.noise

    @property
    def last_bit(self) -> float:
        """The last bit of the largest number that is likely to stand in the computation of L."""
        one = max([1.0, largest(self.start), *map(largest, self.scalar.y)])
        return EPS * one * max(map(largest, self.scalar.dy), default=0.0)

    def __call__(self, t: float) -> float:
        """The change of L at t."""
        np.add(self.start, t * self.direction, out=self.x)
        try:
            moved = self.scalar.evaluate()
        finally:
            self.x[...] = self.start
        self.calls += 1
        change = 0.0
        for y_t, y, dy in zip(moved, self.scalar.y, self.scalar.dy):
            y_t -= y
            y_t *= dy
            change += float(y_t.sum())
        return change


def largest(x: np.ndarray) -> float:
    """The largest absolute value; 0 where there is none."""
    return float(np.max(np.abs(x), initial=0.0))


def rms(x: np.ndarray) -> float:
    """The root of the mean square: the usual size of an element; 0 where there is none."""
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0
