"""A third-party function with its right gradient, and the arrays that it is tried on.

Each argument has a kind of array. Arrays are drawn at a normal scale and at every other scale for which the function
can be computed: small, large, widely mixed, with zeros, with ties, with condition numbers up to 1e6, in float32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.gradcheck import gradcheck_vjp

Arrays = tuple[np.ndarray, ...]
SCALES = ("normal", "small", "large", "mixed", "zeros", "ties", "condition 1e6", "float32",
          "3,000 elements with ties")
SMOOTH = ("normal", "small", "large", "mixed", "zeros", "ties", "float32")
ROWS = (*SMOOTH, "3,000 elements with ties")  # for functions that treat every row in the same way
MATRIX = ("normal", "small", "large", "condition 1e6", "float32")
MODEST = ("normal", "small", "zeros", "ties", "float32")  # for functions that overflow or saturate at large numbers


@dataclass(frozen=True)
class ThirdParty:
    """`f(*arrays)`, its `vjp(dy, *arrays)`, and for each argument a kind of array and a shape."""

    f: Callable[..., Any]
    vjp: Callable[..., Any]
    kinds: tuple[tuple[str, tuple[int, ...]], ...]
    scales: tuple[str, ...] = SMOOTH
    tolerance: float = 0.0  # of an iteration that stops early; passed as rtol

    @property
    def name(self) -> str:
        return self.f.__name__

    def check(self, scale: str, seed: int) -> None:
        """Run the checker with newly drawn arrays; it must find nothing."""
        gradcheck_vjp(self.f, self.vjp, self.draw(np.random.default_rng(seed), scale), seed=seed, rtol=self.tolerance)

    def draw(self, rng: np.random.Generator, scale: str = "normal") -> Arrays:
        """One array for each argument."""
        rows, *rest = self.kinds[0][1]
        many = 1 + 3000 // (rows * math.prod(rest)) if scale == "3,000 elements with ties" else 1
        shapes = [(shape[0] * many, *shape[1:]) if shape[0] == rows else shape for _, shape in self.kinds]
        return tuple(draw(kind, shape, rng, scale) for (kind, _), shape in zip(self.kinds, shapes))


def draw(kind: str, shape: tuple[int, ...], rng: np.random.Generator, scale: str) -> np.ndarray:
    """An array of a kind at a scale."""
    condition = 10 ** rng.uniform(2, 6) if scale == "condition 1e6" else 10 ** rng.uniform(0, 1.5)
    if kind in ("spd", "square"):
        n = shape[-1]
        values = condition ** -np.linspace(0, 1, n)
        left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
        x = (left * values) @ (left if kind == "spd" else right).T
        x = (x + x.T) / 2 if kind == "spd" else x
    elif kind == "simplex":
        x = rng.exponential(size=shape) + 0.05
        x /= x.sum(-1, keepdims=True)
        return x.astype(np.float32) if scale == "float32" else x
    elif kind == "unit interval":
        x = rng.uniform(0.05, 0.95, shape)
        return x.astype(np.float32) if scale == "float32" else x
    else:
        x = rng.standard_normal(shape)
        if scale == "mixed":
            x *= 10 ** rng.uniform(-3, 3, shape)
        if scale == "zeros":
            x *= rng.random(shape) < 0.7
        if scale == "ties":
            x = np.round(2 * x) / 2
        if scale == "3,000 elements with ties":
            x = np.round(x, 1)
    x = x * {"small": 1e-4, "large": 1e4}.get(scale, 1.0)
    return x.astype(np.float32) if scale == "float32" else x
