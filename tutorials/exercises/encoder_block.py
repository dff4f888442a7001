"""Exercise: the gradients of a whole encoder block

    h = x + attention(norm_1(x))
    y = h + feed_forward(norm_2(h))

This file has the forward. Write EncoderBlock.backward(dy, cache), which returns dx, grads.

Each part (attention, the feed-forward network, each norm) is a layer. part.backward(gradient, cache_of_the_part)
returns the gradient of the part's input, and a dict with the gradients of the part's parameters.
Each key of the block's grads starts with the name of the part, for example "norm_1.gamma". The function prefixed does
this: prefixed("norm_1", d) puts "norm_1." before each key of the dict d.

    python -m numpy_attention grade tutorials/exercises/encoder_block.py            check your function
    python -m numpy_attention grade tutorials/exercises/encoder_block.py --hint 1   the first of three hints
"""

import numpy as np

from numpy_attention.layers import FeedForward, Layer, LayerNorm, MultiHeadAttention
from numpy_attention.layers.c13_layer import prefixed


class EncoderBlock(Layer):
    """Two sublayers (attention and a feed-forward network), each after a norm.

    The output of each sublayer is added to the input of the norm before it.
    """

    def __init__(self, d_model, num_heads, d_ff, rng, dtype=np.float32):
        self.attention = MultiHeadAttention(d_model, num_heads, rng, bias=True, dtype=dtype)
        self.norm_1 = LayerNorm(d_model, dtype=dtype)
        self.feed_forward = FeedForward(d_model, d_ff, rng, activation="gelu", dtype=dtype)
        self.norm_2 = LayerNorm(d_model, dtype=dtype)

    def forward(self, x, mask=None):
        """x (B, T, d_model), mask broadcastable to (B, H, T, T) -> y (B, T, d_model)."""
        normed, norm_1 = self.norm_1.forward(x)
        attended, attention = self.attention.forward(normed, mask=mask)
        h = x + attended
        normed, norm_2 = self.norm_2.forward(h)
        changed, feed_forward = self.feed_forward.forward(normed)
        y = h + changed
        return y, (norm_1, attention, norm_2, feed_forward)

    def backward(self, dy, cache):
        """dy (B, T, d_model) -> dx (B, T, d_model), grads {"attention.w_q": ..., "norm_1.gamma": ..., ...}."""
        norm_1, attention, norm_2, feed_forward = cache
        raise NotImplementedError
