"""L = sum(dy * y), a single number, along a line through one of the arrays.

With a random dy, dL/dx = J^T dy is exactly what a backward must return. So one number stands for all outputs:

    t  ->  L(x + t v) - L(x) = sum(dy * (y(x + t v) - y(x)))

where v is a unit vector (one element) or a random direction (all elements at once). The difference is taken output by
output before it is summed, so that outputs which do not change add no round-off. Everything here is float64, except
what the function itself computes in less. Where it raises, as a logarithm of a negative number may, L is NaN.
"""

import math
from collections.abc import Callable, Iterable
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
    eps: float = field(init=False)  # the last bit of a 1 in the outputs' dtype
    noise: float = field(init=False)  # the round-off in L: half a last bit of every output, added like noise
    terms: float = field(init=False)  # the largest |dy * y|

    def __post_init__(self) -> None:
        products = [dy * y for dy, y in zip(self.dy, self.y, strict=True)]
        self.eps = max((float(np.finfo(y.dtype).eps) for y in self.y if y.dtype.kind == "f"), default=EPS)
        self.noise = self.eps * math.sqrt(sum(float(np.sum(one * one)) for one in products))
        self.terms = max(map(largest, products), default=0.0)

    def line(self, x: np.ndarray, where: slice, direction: np.ndarray) -> "Line":
        """L along a line through a stretch of the flattened x."""
        return Line(self, [(x, where, direction)])

    def through(self, arrays: Iterable[np.ndarray], directions: Iterable[np.ndarray]) -> "Line":
        """L along a line through several arrays at once."""
        return Line(self, [(x, slice(None), v.reshape(-1)) for x, v in zip(arrays, directions, strict=True)])


class Line:
    """t -> L(x + t v) - L(x), where x is moved in place and always put back.

    Each piece is an array, the stretch of it (flattened) that moves, and how far its elements move per unit of t.

    Raises: ValueError for an array that is not C-contiguous
    """

    def __init__(self, scalar: Scalar, pieces: list[tuple[np.ndarray, slice, np.ndarray]]) -> None:
        if not all(x.flags.c_contiguous for x, _, _ in pieces):
            raise ValueError("Line: x must be C-contiguous, or moving it would move a copy")
        self.scalar, self.calls = scalar, 0
        views = [(x.reshape(-1)[where], direction) for x, where, direction in pieces]
        self.moved = [(x, x.copy(), direction) for x, direction in views]

    @property
    def noise(self) -> float:
        """The round-off in L."""
        return self.scalar.noise

    @property
    def last_bit(self) -> float:
        """The last bit of the largest number that is likely to occur in the computation of L."""
        one = max([1.0, *(largest(start) for _, start, _ in self.moved), *map(largest, self.scalar.y)])
        return self.scalar.eps * one * max(map(largest, self.scalar.dy), default=0.0)

    def __call__(self, t: float) -> float:
        """The change of L at t; NaN outside the domain, which a function may tell by an error."""
        self.calls += 1
        try:
            for x, start, direction in self.moved:
                np.add(start, t * direction, out=x)
            outputs = self.scalar.evaluate()
        except Exception:  # at t = 0 it was fine
            return math.nan
        finally:
            for x, start, _ in self.moved:
                x[...] = start
        change = 0.0
        for y_t, y, dy in zip(outputs, self.scalar.y, self.scalar.dy):
            if y_t.shape != y.shape:
                return math.nan
            y_t -= y
            y_t *= dy
            change += float(y_t.sum())
        return change


def largest(x: np.ndarray) -> float:
    """The largest absolute value; 0 where there is none."""
    return float(np.max(np.abs(x), initial=0.0))


def sizes(x: np.ndarray) -> np.ndarray:
    """How large each element is; a zero as large as is usual in x."""
    size = np.abs(x)
    return np.where(size > 0, size, rms(x) or 1.0)


def rms(x: np.ndarray) -> float:
    """The root of the mean square: the usual size of an element; 0 where there is none."""
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0
