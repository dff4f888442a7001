"""Chapter 20. The block: look around, look across, think

A transformer repeats one block. A block has two or three sublayers. Each sublayer is a branch: its output is added to
the residual stream, the array that runs through all blocks. Norm and dropout are as in Chapter 19; the picture leaves
them out:

    x ----+--------------------(+)----+----------------------(+)----+-------------------(+)----> y
          |                     |     |                       |     |                    |
          +----> attention -----+     +-> cross-attention ----+     +-> feed-forward ----+
                 q, k, v from x           q from here,              each position by itself
                                          k, v from the context

The block of an encoder has no cross-attention and sees the whole sequence. A decoder writes from left to right: the
mask of its block hides all later positions, and the cross-attention looks at another sequence, the output of the
encoder ("context"). A GPT has decoder blocks without cross-attention.

In the backward, cross-attention has two gradients: dx continues down the block, and dcontext goes to the encoder.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_number, value_error
from numpy_attention.layers.c13_layer import Layer, flat_gradients
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c17_multi_head_attention import MultiHeadAttention
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.layers.c18_feed_forward import FeedForward
from numpy_attention.layers.c19_residual import ResidualCache, residual, residual_backward
from numpy_attention.ops.c12a_tiles import Band


class BlockCache(NamedTuple):
    """What backward needs: the cache of each residual; `cache.attention.sublayer` is the cache of the attention."""

    attention: ResidualCache
    cross_attention: ResidualCache | None
    feed_forward: ResidualCache


class Block(Layer):
    """Self-attention, optional cross-attention, and a feed-forward network, each with a residual and a norm.

    The caller passes the mask, so one block works with a causal mask, a sliding window or padding.
    `attention` is a dict with options for the self-attention only, such as num_kv_heads or rotary_base.

    Shapes: x (B, T, d_model), context (B, T_k, d_model) -> y (B, T, d_model); mask and scores_bias broadcast to
    (B, H, T, T), context_mask to (B, H, T, T_k).

    Raises: ValueError for a context without cross-attention, or cross-attention without a context; TypeError or
    ValueError for invalid sizes and rates.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.1; without cross-attention: Radford et al.,
    Language Models are Unsupervised Multitask Learners (2019), section 2.3.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, rng: np.random.Generator | None, *,
        cross_attention: bool = False, pre_norm: bool = False, norm: str = "layer_norm", norm_eps: float | None = None,
        activation: str = "relu", bias: bool = True, dropout: float = 0.0,
        attention: dict[str, Any] | None = None, dtype: Any = np.float32,
    ) -> None:
        self.pre_norm = pre_norm
        self.dropout = require_number(type(self).__name__, "dropout", dropout, at_least=0, below=1)
        options: dict[str, Any] = {"bias": bias, "dropout": dropout, "dtype": dtype}
        self.attention = MultiHeadAttention(d_model, num_heads, rng, **options | (attention or {}))
        self.norm_1: Any = norm_layer(norm, d_model, norm_eps, dtype)
        self.cross_attention = MultiHeadAttention(d_model, num_heads, rng, **options) if cross_attention else None
        self.norm_cross = norm_layer(norm, d_model, norm_eps, dtype) if cross_attention else None
        self.feed_forward = FeedForward(d_model, d_ff, rng, activation, bias, dropout, dtype)
        self.norm_2: Any = norm_layer(norm, d_model, norm_eps, dtype)

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None, scores_bias: np.ndarray | None = None,
        positions: np.ndarray | None = None, past: tuple[KeyValueCache, KeyValueCache] | KeyValueCache | None = None,
        rng: np.random.Generator | None = None, band: Band | None = None,
    ) -> tuple[np.ndarray, BlockCache]:
        """Run the block. `past` (generation only, no backward): the KV cache; with cross-attention a pair of them.

        A `band` (Chapter 12) defines by position which keys self-attention sees; then both attentions run in tiles.
        """
        self.check_context(context)
        past, past_cross = past if isinstance(past, tuple) else (past, None)
        how = self.pre_norm, self.dropout, rng  # of the residual connection; a sublayer has its own dropout
        inputs = {"mask": mask, "scores_bias": scores_bias, "positions": positions, "past": past, "band": band}
        h, attention = residual(x, self.norm_1, self.attention, *how, **inputs, rng=rng)
        across = None
        if self.cross_attention is not None and self.norm_cross is not None:
            band = None if band is None else Band()  # in tiles, but no key of the context is hidden
            inputs = {"context": context, "mask": context_mask, "past": past_cross, "band": band}
            h, across = residual(h, self.norm_cross, self.cross_attention, *how, **inputs, rng=rng)
        y, feed_forward = residual(h, self.norm_2, self.feed_forward, *how, rng=rng)
        return y, BlockCache(attention, across, feed_forward)

    def backward(self, dy: np.ndarray, cache: BlockCache) -> tuple[Any, ...]:
        """Return dx, grads; with cross-attention dx, dcontext, grads."""
        grads: dict[str, Any] = {}
        # y = residual(h, norm_2, feed_forward)
        dh, grads["norm_2"], grads["feed_forward"] = residual_backward(
            dy, cache.feed_forward, self.norm_2, self.feed_forward, self.pre_norm
        )
        dcontext = None
        if cache.cross_attention is not None and self.norm_cross is not None:
            # h = residual(h, norm_cross, cross_attention), a branch with a second input
            dh, grads["norm_cross"], dcontext, grads["cross_attention"] = residual_backward(
                dh, cache.cross_attention, self.norm_cross, self.cross_attention, self.pre_norm
            )
        # h = residual(x, norm_1, attention)
        dx, grads["norm_1"], grads["attention"] = residual_backward(
            dh, cache.attention, self.norm_1, self.attention, self.pre_norm
        )
        grads = flat_gradients(grads)
        return (dx, grads) if dcontext is None else (dx, dcontext, grads)

    def check_context(self, context: np.ndarray | None) -> None:
        """Refuse a context without cross-attention, and cross-attention without a context."""
        if (context is None) != (self.cross_attention is None):
            expected = "passed if and only if the block has cross-attention"
            got = "None" if context is None else f"an array of shape {np.shape(context)}"
            fix = f"the block was built with cross_attention={self.cross_attention is not None}"
            raise value_error(type(self).__name__, "context", expected, got, fix)


class EncoderBlock(Block):
    """The block of an encoder. Pass a mask that hides padding, or none."""


class DecoderBlock(Block):
    """The block of a decoder. Pass a causal mask; in an encoder-decoder, set cross_attention=True."""
