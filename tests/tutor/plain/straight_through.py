"""The plain forms of rounding and of its surrogate, number by number."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_fake_quantize(x: Array, scale: float, bits: int) -> Array:
    """Python's round, as NumPy's, rounds halves to even."""
    n = 2 ** (bits - 1) - 1
    return np.reshape([scale * min(max(round(t / scale), -n), n) for t in x.reshape(-1).tolist()], x.shape)


def plain_surrogate(x: Array, scale: float, bits: int) -> Array:
    """The same without rounding."""
    n = 2 ** (bits - 1) - 1
    return np.reshape([min(max(t, -n * scale), n * scale) for t in x.reshape(-1).tolist()], x.shape)


PLAIN = {"fake_quantize": plain_fake_quantize, "surrogate": plain_surrogate}
