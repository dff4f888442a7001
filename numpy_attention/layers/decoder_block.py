"""Chapter 20. The decoder block: look back, look across, think

The decoder writes a sequence from left to right. Its self-attention is masked, so that no position sees a later one;
its cross-attention asks questions of another sequence, the encoder's output ("context" here):

    h_1 = x   + attention(x)                  masked: q, k, v from x
    h_2 = h_1 + cross_attention(h_1, c)       q from h_1; k, v from the context c
    y   = h_2 + feed_forward(h_2)             (norms as in Chapter 20)

Going back, cross-attention is the fork in the road: of its two gradients one, dh_1, goes on down the decoder, the
other, dcontext, leaves the block sideways. Every decoder block reads the same context, so the encoder receives the
sum of what all blocks send. Without cross-attention the block is the one that GPT is made of.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.feed_forward import FeedForward, FeedForwardCache
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.layers.multi_head_attention import MultiHeadAttention, MultiHeadAttentionCache
from numpy_attention.layers.normalization import norm_layer
from numpy_attention.ops.dropout import dropout, dropout_backward


class DecoderBlockCache(NamedTuple):
    """What backward needs; the cross fields are None in a block without cross-attention."""

    attention: MultiHeadAttentionCache
    norm_1: Any
    cross_attention: MultiHeadAttentionCache | None
    norm_cross: Any
    feed_forward: FeedForwardCache
    norm_2: Any
    dropout_1: Any
    dropout_cross: Any
    dropout_2: Any


class DecoderBlock(Layer):
    """Masked self-attention, cross-attention if asked for, and a feed-forward network, each residual and normed.

    The mask is the caller's (`causal_mask(T)`), so that the block also serves with a sliding window or with padding.
    `attention` holds further options of the self-attention, such as num_kv_heads or rotary_base.

    Shapes: x (B, T, d_model), context (B, T_k, d_model) -> y (B, T, d_model); mask and bias broadcast to
    (B, H, T, T), context_mask to (B, H, T, T_k).
    Source: Vaswani et al., 2017, section 3.1; without cross-attention: Radford et al., "Language Models are
    Unsupervised Multitask Learners", 2019.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        rng: np.random.Generator | None,
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
        self.dropout = dropout
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
        bias: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        past: tuple[KeyValueCache, KeyValueCache | None] | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, DecoderBlockCache]:
        """Run the block. `past` (generation only, no backward): stored keys of the self- and the cross-attention."""
        if (context is None) != (self.cross_attention is None):
            raise ValueError(
                "DecoderBlock: context must be given to a block with cross-attention and to no other, got "
                + ("none" if context is None else f"one {context.shape}")
                + "; the block was built with cross_attention=" + str(self.cross_attention is not None)
            )
        rate = self.dropout if training else 0.0
        past_self, past_cross = (None, None) if past is None else past
        norm_1 = cross = norm_cross = dropout_cross = norm_2 = None

        h = x  # (B, T, d_model)
        if self.pre_norm:
            h, norm_1 = self.norm_1.forward(h)
        h, attention = self.attention.forward(
            h, mask=mask, bias=bias, positions=positions, past=past_self, training=training, rng=rng
        )
        h, dropout_1 = dropout(h, rate, rng)
        h += x  # h is ours to change, x is not
        if not self.pre_norm:
            h, norm_1 = self.norm_1.forward(h)

        if self.cross_attention is not None and self.norm_cross is not None:
            h_1 = h
            if self.pre_norm:
                h, norm_cross = self.norm_cross.forward(h)
            h, cross = self.cross_attention.forward(
                h, context, mask=context_mask, past=past_cross, training=training, rng=rng
            )
            h, dropout_cross = dropout(h, rate, rng)
            h += h_1
            if not self.pre_norm:
                h, norm_cross = self.norm_cross.forward(h)

        y = h
        if self.pre_norm:
            y, norm_2 = self.norm_2.forward(y)
        y, feed_forward = self.feed_forward.forward(y, training=training, rng=rng)
        y, dropout_2 = dropout(y, rate, rng)
        y += h
        if not self.pre_norm:
            y, norm_2 = self.norm_2.forward(y)
        return y, DecoderBlockCache(
            attention, norm_1, cross, norm_cross, feed_forward, norm_2, dropout_1, dropout_cross, dropout_2
        )

    def backward(self, dy: np.ndarray, cache: DecoderBlockCache) -> tuple[Any, ...]:
        """dx, grads; in a block with cross-attention dx, dcontext, grads."""
        grads: dict[str, Parameters] = {}

        if not self.pre_norm:
            # y = norm_2(y)
            dy, grads["norm_2"] = self.norm_2.backward(dy, cache.norm_2)
        # y = h + dropout(feed_forward(norm_2(h))): the sum hands dy to both of its terms
        dh = dropout_backward(dy, cache.dropout_2)
        dh, grads["feed_forward"] = self.feed_forward.backward(dh, cache.feed_forward)
        if self.pre_norm:
            dh, grads["norm_2"] = self.norm_2.backward(dh, cache.norm_2)
        dh += dy

        dcontext = None
        if self.cross_attention is not None and self.norm_cross is not None and cache.cross_attention is not None:
            if not self.pre_norm:
                # h_2 = norm_cross(h_2)
                dh, grads["norm_cross"] = self.norm_cross.backward(dh, cache.norm_cross)
            # h_2 = h_1 + dropout(cross_attention(norm_cross(h_1), context))
            dh_1 = dropout_backward(dh, cache.dropout_cross)
            dh_1, dcontext, grads["cross_attention"] = self.cross_attention.backward(dh_1, cache.cross_attention)
            if self.pre_norm:
                dh_1, grads["norm_cross"] = self.norm_cross.backward(dh_1, cache.norm_cross)
            dh_1 += dh
            dh = dh_1

        if not self.pre_norm:
            # h = norm_1(h)
            dh, grads["norm_1"] = self.norm_1.backward(dh, cache.norm_1)
        # h = x + dropout(attention(norm_1(x)))
        dx = dropout_backward(dh, cache.dropout_1)
        dx, grads["attention"] = self.attention.backward(dx, cache.attention)
        if self.pre_norm:
            dx, grads["norm_1"] = self.norm_1.backward(dx, cache.norm_1)
        dx += dh

        flat: Parameters = {}
        for name in ("attention", "norm_1", "cross_attention", "norm_cross", "feed_forward", "norm_2"):
            flat |= prefixed(name, grads.get(name, {}))
        return (dx, flat) if dcontext is None else (dx, dcontext, flat)
