"""Questions about prefix matching: weights of heads, and N, the number of tokens before the repetition."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Questions, Quiz


def about_prefixes(rng: np.random.Generator) -> Questions:
    """A perfect head, then random weights with a causal mask."""

    def weights(H: int, N: int, dtype: Any = np.float64) -> Array:
        w = np.tri(2 * N) * rng.random((H, 2 * N, 2 * N))
        return np.asarray(w / w.sum(axis=-1, keepdims=True)).astype(dtype)

    yield "a head that looks only at the key after the earlier copy, with weight 1", (
        np.eye(6, k=-2)[None] + np.eye(6)[None] * (np.arange(6) < 2), 3)
    yield "one random head, N = 2", (weights(1, 2), 2)
    yield "three heads, N = 4", (weights(3, 4), 4)
    yield "N = 1, with a query that looks at itself", (weights(2, 1), 1)
    yield "arrays of float32", (weights(2, 3, np.float32), 3)


QUESTIONS = {"prefix_matching": Quiz(about_prefixes)}
