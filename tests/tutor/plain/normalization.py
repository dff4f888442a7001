"""The plain forms of the layer norm and the RMS norm."""

import math

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """Computes one row at a time: subtracts the mean, divides by sqrt(variance + eps)."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        centred = row - sum(row) / len(row)
        variance = sum(centred**2) / len(row)
        rows.append(gamma * centred / math.sqrt(variance + eps) + beta)
    return np.reshape(rows, x.shape)


def plain_rms_norm(x: Array, gamma: Array, eps: float = 1e-6) -> Array:
    """Computes one row at a time: divides by sqrt(mean square + eps)."""
    rows = [gamma * row / math.sqrt(sum(row**2) / len(row) + eps) for row in x.reshape(-1, x.shape[-1])]
    return np.reshape(rows, x.shape)


PLAIN = {"layer_norm": plain_layer_norm, "rms_norm": plain_rms_norm}
