"""The plain form of dropout."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_dropout(x: Array, rate: float, rng: np.random.Generator | None) -> Array:
    """Returns x without a generator; with a generator it draws the same numbers as the op."""
    if rng is None or rate == 0.0:
        return x
    kept = rng.random(x.shape, dtype=np.float32) >= rate
    return np.asarray(np.where(kept, x / (1.0 - rate), 0.0))


PLAIN = {"dropout": plain_dropout}
