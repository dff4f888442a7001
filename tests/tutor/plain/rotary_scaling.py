"""The plain form of the scaled rotation."""

from typing import Any

import numpy as np

from numpy_attention.recent.c47_rotary_scaling import rotary_frequencies, yarn_temperature
from numpy_attention.tutor.entry import Array
from tests.tutor.plain.positions import plain_rotary


def plain_scaled_rotary(
    x: Array, positions: Array, base: float, pairing: str = "half", width: int | None = None, scaling: Any = None
) -> Array:
    """Rotates with the scaled frequencies, then multiplies the rotated columns by the temperature of YaRN."""
    n = x.shape[-1] if width is None else width
    y = plain_rotary(x, positions, base, pairing, rotary_frequencies(n, base, scaling))
    longer = yarn_temperature(scaling["factor"]) if scaling["type"] == "yarn" else 1.0
    return np.concatenate([longer * y[..., :n], y[..., n:]], axis=-1)


PLAIN = {"scaled_rotary": plain_scaled_rotary}
