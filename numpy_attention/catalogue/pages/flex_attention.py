"""Attention with a function of the scores (Chapter 6): a cap, a causal mask, squared weights, grouped heads."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.catalogue.entry import Array, op_entry, times
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.catalogue.pages.attention import GROUPED, GROUPS, ONE_HEAD, QKV
from numpy_attention.ops.flex_attention import UNCHANGED, FlexAttentionCache, Modifier, flex_attention_backward

CHAPTER = 6


def _mask(x: Array) -> Array:
    return ops.causal_mask(*x.shape[-2:], like=x)


CAUSAL: Modifier = (lambda x: (np.where(_mask(x), x, -np.inf), None), lambda dy, _: np.where(_mask(dy), dy, 0.0))
CAP: Modifier = (partial(ops.softcap, cap=1.5), ops.softcap_backward)
SQUARE: Modifier = (lambda x: (x * x, x), lambda dy, x: 2 * x * dy)

_entry = partial(op_entry, "flex_attention")
ENTRIES = (
    _entry(QKV, wrong="k+0 k-1 v+2 k.T q:float32 q:int64 q[list]"),
    _entry(ONE_HEAD, "scores capped, no leading axes", options={"score_mod": CAP}),
    _entry(QKV, "causal", options={"score_mod": CAUSAL, "scale": 0.7}),
    _entry(QKV, "weights squared, large scores", options={"prob_mod": SQUARE}, prepare=times("q", 10.0)),
    _entry(GROUPED + GROUPS, "grouped heads", options={"score_mod": CAP, "prob_mod": SQUARE},
           at_least={"G": 2, "H_kv": 2}),
)


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


@backward_of("flex_attention", diagnosis="in place of `fold_heads(used, k)`")
def dv_before_prob_mod(dy: Array, cache: FlexAttentionCache) -> Any:
    """dv uses the weights before prob_mod, but the forward computes the output from the weights after prob_mod.

    Hides: right if prob_mod is off; dq and dk are right.
    """
    return flex_attention_backward(dy, cache._replace(used=cache.weights))


@backward_of("flex_attention", diagnosis="the derivative with respect to `x_cap` is left out")
def score_mod_in_the_forward_only(dy: Array, cache: FlexAttentionCache) -> Any:
    """The backward skips score_mod, as if its derivative were 1.

    Hides: right for a bias and for a mask, because the weights of hidden pairs are 0; wrong for a softcap.
    """
    return flex_attention_backward(dy, cache._replace(score_mod=(UNCHANGED[1], None)))
