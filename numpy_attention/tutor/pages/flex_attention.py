"""Functions of the scores and weights with their backwards, and the plain form of attention with such functions."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.ops.c04_masks import causal_mask
from numpy_attention.ops.c06a_flex_attention import UNCHANGED, Modifier
from numpy_attention.ops.c06b_scores import softcap, softcap_backward
from numpy_attention.tutor.entry import Array


def hidden_future(x: Array, hidden: float = -np.inf) -> Array:
    """x with the number `hidden` where the key is at a later position than the query."""
    return np.where(causal_mask(*x.shape[-2:], like=x), x, hidden)


CAUSAL: Modifier = (lambda x: (hidden_future(x), None), lambda dy, _: hidden_future(dy, 0.0))
CAP: Modifier = (partial(softcap, cap=1.5), softcap_backward)
SQUARE: Modifier = (lambda x: (x * x, x), lambda dy, x: 2 * x * dy)


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
