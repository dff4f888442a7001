"""Compare two results, bit by bit or up to rounding."""

from typing import Any

import numpy as np


def same(a: Any, b: Any, rounding: Any = False) -> bool:
    """True if both are equal in every bit, or up to rounding, of float32 if `rounding` is this dtype.

    Compares tuples, dicts, layers and caches by parts.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        if rounding and a.dtype.kind == "f":
            tolerance = 1e-4 if np.float32 in (a.dtype, rounding) else 1e-9
            return bool(np.allclose(a, b, rtol=tolerance, atol=1e-2 * tolerance, equal_nan=True))
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and len(a) == len(b) and all(same(*pair, rounding) for pair in zip(a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key], rounding) for key in a)
    if isinstance(a, np.random.Generator):
        return bool(a.bit_generator.state == b.bit_generator.state)
    if hasattr(a, "__dict__") and not callable(a) and not isinstance(a, type):
        return type(a) is type(b) and same(vars(a), vars(b), rounding)
    return bool(a == b)


def close(a: Any, b: Any) -> bool:
    """True if both are equal up to a few roundings of float64."""
    if a is None or b is None:
        return a is b
    if isinstance(a, tuple):
        return all(close(x, y) for x, y in zip(a, b, strict=True))
    size = float(np.max(np.abs(a), initial=0.0))
    # If terms of size 1 cancel, a gradient of zero still contains their rounding errors.
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= 1e-11 * max(size, 1e-2)))
