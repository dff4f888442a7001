"""Chapter 20. The encoder block: attention, then the feed-forward network, each beside a straight path

    post-LN (2017)    x = norm(x + sublayer(x))
    pre-LN  (2019)    x = x + sublayer(norm(x))

The addition is the residual connection. A sum passes its gradient on unchanged to both terms, so

    y = x + s(x)      dx = dy + ds(dy)

and the first dy runs down the whole stack without meeting a weight: this is why deep transformers train.
In post-LN a norm stands on that path after every sublayer, in pre-LN none does; pre-LN therefore trains without
warm-up, but needs one more norm behind the last block, which the model adds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.feed_forward import FeedForward, FeedForwardCache
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.layers.multi_head_attention import MultiHeadAttention, MultiHeadAttentionCache
from numpy_attention.layers.normalization import norm_layer
from numpy_attention.ops.dropout import dropout, dropout_backward


class EncoderBlockCache(NamedTuple):
    """What backward needs, in the order of the parameters' names."""

    attention: MultiHeadAttentionCache
    norm_1: Any
    feed_forward: FeedForwardCache
    norm_2: Any
    dropout_1: Any
    dropout_2: Any


class EncoderBlock(Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a norm.

        pre-LN     h = x + attention(norm_1(x)),      y = h + feed_forward(norm_2(h))
        post-LN    h = norm_1(x + attention(x)),      y = norm_2(h + feed_forward(h))

    `attention` holds further options of `MultiHeadAttention`, such as num_kv_heads or rotary_base.

    Shapes: x (B, T, d_model) -> y (B, T, d_model); mask and bias broadcast to (B, H, T, T).
    Source: Vaswani et al., 2017, section 3.1; pre-LN: Xiong et al., "On Layer Normalization in the Transformer
    Architecture", 2020.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        rng: np.random.Generator | None,
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
        options = {"bias": bias, "dropout": dropout, "dtype": dtype} | (attention or {})
        self.attention = MultiHeadAttention(d_model, num_heads, rng, **options)
        self.norm_1 = norm_layer(norm, d_model, norm_eps, dtype)
        self.feed_forward = FeedForward(d_model, d_ff, rng, activation, bias, dropout, dtype)
        self.norm_2 = norm_layer(norm, d_model, norm_eps, dtype)

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, EncoderBlockCache]:
        rate = self.dropout if training else 0.0
        norm_1 = norm_2 = None

        h = x  # (B, T, d_model)
        if self.pre_norm:
            h, norm_1 = self.norm_1.forward(h)
        h, attention = self.attention.forward(
            h, mask=mask, bias=bias, positions=positions, training=training, rng=rng
        )
        h, dropout_1 = dropout(h, rate, rng)
        h += x  # h is ours to change, x is not
        if not self.pre_norm:
            h, norm_1 = self.norm_1.forward(h)

        y = h
        if self.pre_norm:
            y, norm_2 = self.norm_2.forward(y)
        y, feed_forward = self.feed_forward.forward(y, training=training, rng=rng)
        y, dropout_2 = dropout(y, rate, rng)
        y += h
        if not self.pre_norm:
            y, norm_2 = self.norm_2.forward(y)
        return y, EncoderBlockCache(attention, norm_1, feed_forward, norm_2, dropout_1, dropout_2)

    def backward(self, dy: np.ndarray, cache: EncoderBlockCache) -> tuple[np.ndarray, Parameters]:
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
        for name in ("attention", "norm_1", "feed_forward", "norm_2"):
            flat |= prefixed(name, grads[name])
        return dx, flat
