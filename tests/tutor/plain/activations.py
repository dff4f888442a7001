"""The plain forms of GELU and SiLU."""

import math

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_gelu(x: Array, approximate: str = "tanh") -> Array:
    """x times the probability that a normal variable is below x, or the tanh form."""

    def probability(t: float) -> float:
        if approximate == "none":
            return math.erfc(-t / math.sqrt(2)) / 2
        return (1 + math.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3))) / 2

    return np.reshape([t * probability(t) for t in x.reshape(-1).tolist()], x.shape)


def plain_silu(x: Array, alpha: float = 1.0) -> Array:
    """x times the logistic function of alpha x, from a tanh, which does not overflow."""
    return np.asarray(x * (1 + np.tanh(alpha * x / 2)) / 2)


PLAIN = {"gelu": plain_gelu, "silu": plain_silu}
