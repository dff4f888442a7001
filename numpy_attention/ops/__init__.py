"""Part I. Pure functions: each file is one chapter, each forward stands above its backward.

    y, cache = op(x, ..., **options)    an op never changes its inputs
    dx, ...  = op_backward(dy, cache)   one gradient for each differentiable array, in the order of the arguments

Nothing is stored in a function: what the backward needs travels in the cache. So an op may be applied twice, and two
threads may run it at once. A backward changes neither dy nor the cache, and gives the same answer when called again.
Results have the dtype of the input; float16 is summed in float32.

Who owns what? Results and gradients are the caller's, who may go on in place. Three exceptions save a copy: heads that
are split or concatenated may be a view of what went in; dropout that is off hands on x, or dy, itself; the results of
softmax and tiled_attention serve on in their caches. And a cache holds arguments, not copies: what has been given to an
op stays as it is until its backward is done. softmax and its backward write where they are told to: `out=`.
"""

from numpy_attention.ops.activations import gelu, gelu_backward, relu, relu_backward, silu, silu_backward
from numpy_attention.ops.attention import scaled_dot_product_attention, scaled_dot_product_attention_backward
from numpy_attention.ops.dropout import dropout, dropout_backward
from numpy_attention.ops.embedding import embedding, embedding_backward
from numpy_attention.ops.erf import erf
from numpy_attention.ops.heads import concat_heads, concat_heads_backward, split_heads, split_heads_backward
from numpy_attention.ops.linear import linear, linear_backward
from numpy_attention.ops.linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_backward
from numpy_attention.ops.losses import cross_entropy, cross_entropy_backward
from numpy_attention.ops.masks import (
    causal_mask,
    mask_from_additive,
    mask_from_blocked,
    padding_mask,
    sliding_window_mask,
)
from numpy_attention.ops.normalization import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from numpy_attention.ops.positions import alibi_bias, alibi_slopes, rotary, rotary_backward, sinusoidal_positions
from numpy_attention.ops.softmax import softmax, softmax_backward
from numpy_attention.ops.tiled_attention import tiled_attention, tiled_attention_backward, tiled_attention_weights
from numpy_attention.ops.tiles import Band

__all__ = [
    # Chapters 1 and 2: from ids to vectors
    "linear", "linear_backward", "embedding", "embedding_backward",
    # Chapters 3 to 8: attention, and what it is made of
    "softmax", "softmax_backward",
    "causal_mask", "sliding_window_mask", "padding_mask", "mask_from_blocked", "mask_from_additive",
    "dropout", "dropout_backward",
    "scaled_dot_product_attention", "scaled_dot_product_attention_backward",
    "split_heads", "split_heads_backward", "concat_heads", "concat_heads_backward",
    "sinusoidal_positions", "rotary", "rotary_backward", "alibi_slopes", "alibi_bias",
    # Chapters 9 to 11: the rest of a transformer
    "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward",
    "relu", "relu_backward", "gelu", "gelu_backward", "silu", "silu_backward", "erf",
    "cross_entropy", "cross_entropy_backward",
    # Chapter 12: attention again, in little memory, and the loss
    "tiled_attention", "tiled_attention_backward", "tiled_attention_weights", "Band",
    "linear_cross_entropy", "linear_cross_entropy_backward",
]
