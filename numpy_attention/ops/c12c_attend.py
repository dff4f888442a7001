"""Chapter 12, appendix. Tiles in a layer: a band in one argument, and the weights of both forms

A layer that may get a long text takes a `Band`. Without a band, it computes all weights at once (Chapter 6). With a
band, attention runs in tiles, and the band replaces the bias and every mask except padding. Tiles have no dropout.
"""

from typing import Any

import numpy as np

from numpy_attention.errors import value_error
from numpy_attention.ops.c12_tiled_attention import (
    TiledAttentionCache,
    tiled_attention,
    tiled_attention_weights,
)
from numpy_attention.ops.c12a_tiles import Band


def attend_in_tiles(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, band: Band, dropout: float,
    rng: np.random.Generator | None,
) -> tuple[np.ndarray, TiledAttentionCache]:
    """Attention in tiles, with the mask and the bias that the band describes; `mask` hides padding.

    Raises: ValueError for dropout, and as `tiled_attention`.
    """
    refuse_dropout_in_tiles(dropout, rng)
    return tiled_attention(q, k, v, mask, **band._asdict())


def weights_of(cache: Any) -> np.ndarray:
    """The weights (..., H, T_q, T_k) of a call; after attention in tiles they are recomputed."""
    return tiled_attention_weights(cache) if isinstance(cache, TiledAttentionCache) else cache.weights


def refuse_dropout_in_tiles(dropout: float, rng: np.random.Generator | None) -> None:
    """Tiles have no dropout."""
    if rng is not None and dropout:
        fix = "tiles have no dropout; pass a mask in place of the band"
        raise value_error("MultiHeadAttention", "dropout", "0 in training with a band", dropout, fix)
