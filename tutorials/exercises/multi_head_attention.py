"""Exercise: the gradients of multi-head attention

    q = split(x w_q)    k = split(c w_k)    v = split(c w_v)
    c = x in self-attention; in cross-attention c is another sequence, the context
    y = concat(attention(q, k, v)) w_o

This file has the forward. Write MultiHeadAttention.backward(dy, cache). In self-attention it returns dx, grads. In
cross-attention it returns dx, dcontext, grads. grads is the dict {"w_q": ..., "w_k": ..., "w_v": ..., "w_o": ...}.

Use the backwards of the imported functions. Each backward takes a gradient and the cache of its forward.
linear_backward returns dx, dw, db. The backward of attention returns dq, dk, dv, dbias. Here db and dbias are None:
there is no bias.

    python -m numpy_attention grade tutorials/exercises/multi_head_attention.py            check your function
    python -m numpy_attention grade tutorials/exercises/multi_head_attention.py --hint 1   the first of three hints
"""

import numpy as np

from numpy_attention import (
    concat_heads,
    concat_heads_backward,
    linear,
    linear_backward,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
    split_heads,
    split_heads_backward,
)
from numpy_attention.layers import Layer


class MultiHeadAttention(Layer):
    """Several attentions side by side; each head uses its own columns of w_q, w_k and w_v."""

    def __init__(self, d_model, num_heads, rng, dtype=np.float32):
        self.num_heads = num_heads
        self.w_q = rng.standard_normal((d_model, d_model)).astype(dtype)
        self.w_k = rng.standard_normal((d_model, d_model)).astype(dtype)
        self.w_v = rng.standard_normal((d_model, d_model)).astype(dtype)
        self.w_o = rng.standard_normal((d_model, d_model)).astype(dtype)

    def forward(self, x, context=None, mask=None):
        """x (B, T_q, d_model), context (B, T_k, d_model) or None -> y (B, T_q, d_model)."""
        x_kv = x if context is None else context
        q, linear_q = linear(x, self.w_q)
        q, heads_q = split_heads(q, self.num_heads)  # (B, H, T_q, d_k)
        k, linear_k = linear(x_kv, self.w_k)
        k, heads_k = split_heads(k, self.num_heads)  # (B, H, T_k, d_k)
        v, linear_v = linear(x_kv, self.w_v)
        v, heads_v = split_heads(v, self.num_heads)  # (B, H, T_k, d_k)
        heads, attention = scaled_dot_product_attention(q, k, v, mask)  # (B, H, T_q, d_k)
        joined, heads_o = concat_heads(heads)  # (B, T_q, d_model)
        y, linear_o = linear(joined, self.w_o)  # (B, T_q, d_model)
        cross = context is not None
        return y, (linear_q, heads_q, linear_k, heads_k, linear_v, heads_v, attention, heads_o, linear_o, cross)

    def backward(self, dy, cache):
        """dy (B, T_q, d_model) -> (dx, grads) without a context, (dx, dcontext, grads) with a context."""
        linear_q, heads_q, linear_k, heads_k, linear_v, heads_v, attention, heads_o, linear_o, cross = cache
        raise NotImplementedError
