"""The plain form of flex attention."""

from typing import Any

import numpy as np

from numpy_attention.ops.c06a_flex_attention import UNCHANGED
from numpy_attention.tutor.entry import Array


def plain_flex_attention(
    q: Array, k: Array, v: Array, score_mod: Any = UNCHANGED, prob_mod: Any = UNCHANGED, scale: float | None = None
) -> Array:
    """The forward of the chapter; every query head gets a copy of its keys and values."""
    if q.ndim > 2:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    scores = np.einsum("...id,...jd->...ij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    x, _ = score_mod[0](scores)
    e = np.exp(x - np.maximum(x.max(axis=-1, keepdims=True), -1e300))
    used, _ = prob_mod[0](e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-300))
    return np.asarray(np.einsum("...ij,...jd->...id", used, v))


PLAIN = {"flex_attention": plain_flex_attention}
