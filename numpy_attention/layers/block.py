"""Chapter 20. The block: look around, look across, think

A transformer is one block, repeated. Each of its two or three sublayers is a branch beside a straight path (the
residual of Chapter 19, with its norm and its dropout):

    x ----+--------------------(+)----+----------------------(+)----+-------------------(+)----> y
          |                     |     |                       |     |                    |
          +----> attention -----+     +-> cross-attention ----+     +-> feed-forward ----+
                 q, k, v from x           q from here,              each position by itself
                                          k, v from the context

The encoder's block has no cross-attention and sees the whole sequence. The decoder's writes from left to right: the
mask it is given hides all later positions, and its cross-attention asks questions of another sequence, the encoder's
output ("context"). Without cross-attention it is the block that GPT is made of.

Going back, cross-attention is the fork in the road: of its two gradients one goes on down the block, the other,
dcontext, leaves it sideways.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_number, value_error
from numpy_attention.layers.feed_forward import FeedForward
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Layer, flat_gradients
from numpy_attention.layers.multi_head_attention import MultiHeadAttention, MultiHeadAttentionCache
from numpy_attention.layers.normalization import norm_layer
from numpy_attention.layers.residual import ResidualCache, residual, residual_backward
from numpy_attention.ops.tiles import Band


class BlockCache(NamedTuple):
    """What backward needs: a residual for each sublayer; `cache.attention.weights()` are the weights."""

    residual_1: ResidualCache
    residual_cross: ResidualCache | None
    residual_2: ResidualCache

    @property
    def attention(self) -> MultiHeadAttentionCache:
        """The cache of the self-attention."""
        cache: MultiHeadAttentionCache = self.residual_1.sublayer
        return cache

    @property
    def cross_attention(self) -> MultiHeadAttentionCache | None:
        """The cache of the cross-attention, if there is one."""
        return None if self.residual_cross is None else self.residual_cross.sublayer


class Block(Layer):
    """Self-attention, cross-attention if asked for, and a feed-forward network, each with a residual and a norm.

    The mask is the caller's, so that a block serves with a causal mask, a sliding window or padding alike.
    `attention` holds further options of the self-attention, such as num_kv_heads or rotary_base.

    Shapes: x (B, T, d_model), context (B, T_k, d_model) -> y (B, T, d_model); mask and scores_bias broadcast to
    (B, H, T, T), context_mask to (B, H, T, T_k).

    Raises: ValueError for a context without cross-attention, or cross-attention without a context; TypeError or
    ValueError for sizes and rates that no block has.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.1; without cross-attention: Radford et al.,
    Language Models are Unsupervised Multitask Learners (2019), section 2.3.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        rng: np.random.Generator | None,
        *,
        cross_attention: bool = False,
        pre_norm: bool = False,
        norm: str = "layer_norm",
        norm_eps: float | None = None,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        attention: dict[str, Any] | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.pre_norm = pre_norm
        self.dropout = require_number(type(self).__name__, "dropout", dropout, at_least=0, below=1)
        options = {"bias": bias, "dropout": dropout, "dtype": dtype}
        self.attention = MultiHeadAttention(d_model, num_heads, rng, **options | (attention or {}))
        self.norm_1 = norm_layer(norm, d_model, norm_eps, dtype)
        self.cross_attention = MultiHeadAttention(d_model, num_heads, rng, **options) if cross_attention else None
        self.norm_cross = norm_layer(norm, d_model, norm_eps, dtype) if cross_attention else None
        self.feed_forward = FeedForward(d_model, d_ff, rng, activation, bias, dropout, dtype)
        self.norm_2 = norm_layer(norm, d_model, norm_eps, dtype)

    def forward(
        self,
        x: np.ndarray,
        context: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        past: tuple[KeyValueCache, KeyValueCache | None] | None = None,
        rng: np.random.Generator | None = None,
        band: Band | None = None,
    ) -> tuple[np.ndarray, BlockCache]:
        """Run the block. `past` (generation only, no backward): stored keys of the self- and the cross-attention.

        With a `band`, that of the self-attention, both attend in tiles; across, every query may see every key.
        """
        self._check_context(context)
        past_self, past_cross = past or (None, None)
        how = self.pre_norm, self.dropout, rng

        attend = partial(
            self.attention.forward,
            mask=mask, scores_bias=scores_bias, positions=positions, past=past_self, rng=rng, band=band,
        )
        h, residual_1 = residual(x, self.norm_1, attend, *how)  # (B, T, d_model)
        residual_cross = None
        if self.cross_attention is not None and self.norm_cross is not None:
            across = None if band is None else Band()
            look_across = partial(
                self.cross_attention.forward, context=context, mask=context_mask, past=past_cross, rng=rng, band=across
            )
            h, residual_cross = residual(h, self.norm_cross, look_across, *how)
        y, residual_2 = residual(h, self.norm_2, partial(self.feed_forward.forward, rng=rng), *how)
        return y, BlockCache(residual_1, residual_cross, residual_2)

    def backward(self, dy: np.ndarray, cache: BlockCache) -> tuple[Any, ...]:
        """dx, grads; in a block with cross-attention dx, dcontext, grads."""
        grads: dict[str, Any] = {}
        dcontext: list[np.ndarray] = []

        # y = residual(h, norm_2, feed_forward)
        dh, grads["norm_2"], grads["feed_forward"] = residual_backward(
            dy, cache.residual_2, self.norm_2, self.feed_forward.backward, self.pre_norm
        )
        # h = residual(h, norm_cross, cross_attention), a branch with a second input
        if self.cross_attention is not None and self.norm_cross is not None and cache.residual_cross is not None:
            dh, grads["norm_cross"], *dcontext, grads["cross_attention"] = residual_backward(
                dh, cache.residual_cross, self.norm_cross, self.cross_attention.backward, self.pre_norm
            )
        # h = residual(x, norm_1, attention)
        dx, grads["norm_1"], grads["attention"] = residual_backward(
            dh, cache.residual_1, self.norm_1, self.attention.backward, self.pre_norm
        )

        in_order = dict(reversed(grads.items()))  # the parameters stand in the order of the forward
        return dx, *dcontext, flat_gradients(in_order)

    def _check_context(self, context: np.ndarray | None) -> None:
        if (context is None) != (self.cross_attention is None):
            expected = "given to a block with cross-attention and to no other"
            got = "none" if context is None else f"one {np.shape(context)}"
            fix = f"the block was built with cross_attention={self.cross_attention is not None}"
            raise value_error(type(self).__name__, "context", expected, got, fix)


class EncoderBlock(Block):
    """A block of an encoder: it sees the whole sequence, or what a padding mask leaves of it."""


class DecoderBlock(Block):
    """A block for a decoder: give it a causal mask, and in an encoder-decoder cross_attention=True."""
