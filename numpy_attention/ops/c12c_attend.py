"""Chapter 12, appendix. One function for both forms of attention

A layer that may get a long text takes a `Band`. Without a band, all weights are computed at once (Chapter 6). With a
band, attention runs in tiles, and the band replaces the bias and every mask except padding. Tiles have no dropout.
"""

from typing import Any

import numpy as np

from numpy_attention.errors import value_error
from numpy_attention.ops.c06_attention import (
    AttentionCache,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from numpy_attention.ops.c12_tiled_attention import (
    TiledAttentionCache,
    tiled_attention,
    tiled_attention_backward,
    tiled_attention_weights,
)
from numpy_attention.ops.c12a_tiles import Band

AttendCache = AttentionCache | TiledAttentionCache


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, bias: np.ndarray | None, band: Band | None,
    dropout: float, rng: np.random.Generator | None,
) -> tuple[np.ndarray, AttendCache]:
    """y = softmax(scale q k^T + bias) v, with all weights at once, or in tiles if there is a band.

    With a band, `mask` only hides padding.

    Raises: ValueError for dropout with a band, and as both forms.
    """
    if band is None:
        return scaled_dot_product_attention(q, k, v, mask, bias, dropout=dropout, rng=rng)
    refuse_dropout_in_tiles(dropout, rng)
    return tiled_attention(q, k, v, mask, **band._asdict())


def attend_backward(dy: np.ndarray, cache: AttendCache) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dq, dk and dv. A bias (ALiBi) is constant: no gradient."""
    if isinstance(cache, AttentionCache):
        return scaled_dot_product_attention_backward(dy, cache)[:3]
    return tiled_attention_backward(dy, cache)


def weights_of(cache: Any) -> np.ndarray:
    """The weights (..., H, T_q, T_k) of a call; after attention in tiles they are recomputed."""
    return tiled_attention_weights(cache) if isinstance(cache, TiledAttentionCache) else cache.weights


def refuse_dropout_in_tiles(dropout: float, rng: np.random.Generator | None) -> None:
    """Tiles have no dropout."""
    if rng is not None and dropout:
        fix = "tiles have no dropout; pass a mask in place of the band"
        raise value_error("MultiHeadAttention", "dropout", "0 in training with a band", dropout, fix)
