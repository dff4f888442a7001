"""The plain form of positions."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_rotate(x: Array, cos: Array, sin: Array, pairing: str = "half") -> Array:
    """Multiplies pair i, as a complex number, by cos + i sin."""
    y, n, i = x.copy(), cos.shape[-1], np.arange(cos.shape[-1])
    first, second = (i, i + n) if pairing == "half" else (2 * i, 2 * i + 1)
    turned = (x[..., first] + 1j * x[..., second]) * (cos + 1j * sin)
    y[..., first], y[..., second] = turned.real, turned.imag
    return y


def plain_rotary(
    x: Array, positions: Array, base: float = 10000.0, pairing: str = "half", frequencies: Any = None
) -> Array:
    """Rotates pair i of the vector at position t by the angle t base^(-2i / d)."""
    speeds = base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1]) if frequencies is None else frequencies
    angles = positions[..., None] * speeds
    return plain_rotate(x, np.cos(angles), np.sin(angles), pairing)


PLAIN = {"rotate": plain_rotate, "rotary": plain_rotary}
