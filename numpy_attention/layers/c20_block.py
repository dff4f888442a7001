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

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_number, value_error
from numpy_attention.layers.c13_layer import Layer, flat_gradients
from numpy_attention.layers.c16_normalization import Norm, norm_layer
from numpy_attention.layers.c17_multi_head_attention import MultiHeadAttention, MultiHeadAttentionCache, SharedPositions
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.layers.c18_feed_forward import FeedForward
from numpy_attention.layers.c19_residual import ResidualCache, residual, residual_backward
from numpy_attention.ops.c12a_tiles import Band


class BlockCache(NamedTuple):
    """What backward needs: the cache of each residual.

    `cache.attention.weights()` returns the weights of self-attention.
    """

    residual_1: ResidualCache
    residual_cross: ResidualCache | None
    residual_2: ResidualCache

    @property
    def attention(self) -> MultiHeadAttentionCache:
        """The cache of the self-attention."""
        return self.residual_1.sublayer

    @property
    def cross_attention(self) -> MultiHeadAttentionCache | None:
        """The cache of the cross-attention, if there is one."""
        return None if self.residual_cross is None else self.residual_cross.sublayer


class Block(Layer):
    """Self-attention, optional cross-attention, and a feed-forward network, each with a residual and a norm.

    The caller passes the mask, so one block works with a causal mask, a sliding window or padding.
    `attention` is a dict with options for the self-attention only, such as num_kv_heads or rotary_base. With
    `branch_norm`, each sublayer has a norm on its output (Chapter 19); without `pre_norm` there is then no other norm.

    Shapes: x (B, T, d_model), context (B, T_k, d_model) -> y (B, T, d_model); mask and scores_bias broadcast to
    (B, H, T, T), context_mask to (B, H, T, T_k).

    Raises: ValueError for a context without cross-attention, or cross-attention without a context; TypeError or
    ValueError for invalid sizes and rates.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.1; without cross-attention: Radford et al.,
    Language Models are Unsupervised Multitask Learners (2019), section 2.3.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, rng: np.random.Generator | None, *,
        cross_attention: bool = False, pre_norm: bool = False, branch_norm: bool = False, norm: str = "layer_norm",
        norm_eps: float | None = None, activation: str = "relu", bias: bool = True, dropout: float = 0.0,
        attention: dict[str, Any] | None = None, dtype: Any = np.float32,
    ) -> None:
        def norms(on: bool = True) -> list[Norm | None]:  # of the stream, and of the branch
            both = on and (pre_norm or not branch_norm), on and branch_norm
            return [norm_layer(norm, d_model, norm_eps, dtype) if one else None for one in both]

        self.pre_norm = pre_norm
        self.dropout = require_number(type(self).__name__, "dropout", dropout, at_least=0, below=1)
        options = {"bias": bias, "dropout": dropout, "dtype": dtype}
        self.attention = MultiHeadAttention(d_model, num_heads, rng, **options | (attention or {}))
        self.norm_1, self.branch_norm_1 = norms()
        self.cross_attention = MultiHeadAttention(d_model, num_heads, rng, **options) if cross_attention else None
        self.norm_cross, self.branch_norm_cross = norms(cross_attention)
        self.feed_forward = FeedForward(d_model, d_ff, rng, activation, bias, dropout, dtype)
        self.norm_2, self.branch_norm_2 = norms()

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None, scores_bias: np.ndarray | None = None,
        positions: np.ndarray | SharedPositions | None = None,
        past: tuple[KeyValueCache, KeyValueCache | None] | None = None, rng: np.random.Generator | None = None,
        band: Band | None = None,
    ) -> tuple[np.ndarray, BlockCache]:
        """Run the block. `past` (generation only, no backward): the KV caches of self-attention and cross-attention.

        A `band` (Chapter 12) defines by position which keys self-attention sees. With a band, self-attention and
        cross-attention run in tiles (small blocks of the scores), but cross-attention still sees every key.
        """
        self._check_context(context)
        past_self, past_cross = past or (None, None)
        options = self.pre_norm, self.dropout, rng

        attend = partial(
            self.attention.forward,
            mask=mask, scores_bias=scores_bias, positions=positions, past=past_self, rng=rng, band=band,
        )
        h, residual_1 = residual(x, self.norm_1, attend, *options, self.branch_norm_1)  # (B, T, d_model)
        residual_cross = None
        if self.cross_attention is not None:
            across = None if band is None else Band()
            look_across = partial(
                self.cross_attention.forward, context=context, mask=context_mask, past=past_cross, rng=rng, band=across
            )
            h, residual_cross = residual(h, self.norm_cross, look_across, *options, self.branch_norm_cross)
        feed_forward = partial(self.feed_forward.forward, rng=rng)
        y, residual_2 = residual(h, self.norm_2, feed_forward, *options, self.branch_norm_2)
        return y, BlockCache(residual_1, residual_cross, residual_2)

    def backward(self, dy: np.ndarray, cache: BlockCache) -> tuple[Any, ...]:
        """Return dx, grads; with cross-attention dx, dcontext, grads."""
        grads: dict[str, Any] = {}
        dcontext: list[np.ndarray] = []

        # y = residual(h, norm_2, feed_forward)
        dh, grads["norm_2"], grads["branch_norm_2"], grads["feed_forward"] = residual_backward(
            dy, cache.residual_2, self.norm_2, self.feed_forward.backward, self.pre_norm, self.branch_norm_2
        )
        # h = residual(h, norm_cross, cross_attention), a branch with a second input
        if self.cross_attention is not None and cache.residual_cross is not None:
            across = self.norm_cross, self.cross_attention.backward, self.pre_norm, self.branch_norm_cross
            dh, grads["norm_cross"], grads["branch_norm_cross"], *dcontext, grads["cross_attention"] = (
                residual_backward(dh, cache.residual_cross, *across)
            )
        # h = residual(x, norm_1, attention)
        dx, grads["norm_1"], grads["branch_norm_1"], grads["attention"] = residual_backward(
            dh, cache.residual_1, self.norm_1, self.attention.backward, self.pre_norm, self.branch_norm_1
        )

        in_order = dict(reversed(grads.items()))  # back to the order of the forward
        return dx, *dcontext, flat_gradients(in_order)

    def _check_context(self, context: np.ndarray | None) -> None:
        if (context is None) != (self.cross_attention is None):
            expected = "passed if and only if the block has cross-attention"
            got = "None" if context is None else f"an array of shape {np.shape(context)}"
            fix = f"the block was built with cross_attention={self.cross_attention is not None}"
            raise value_error(type(self).__name__, "context", expected, got, fix)


class EncoderBlock(Block):
    """A block for an encoder: it sees the whole sequence, except padding that a mask hides."""


class DecoderBlock(Block):
    """A block for a decoder: pass a causal mask, and in an encoder-decoder set cross_attention=True."""
