"""Part I. Pure functions: each file is one chapter, each forward stands above its backward.

    y, cache = op(x, ..., **options)    an op never changes its inputs
    dx, ...  = op_backward(dy, cache)   one gradient for each differentiable array, in the order of the arguments

Nothing is stored in a function: what the backward needs travels in the cache. So an op may be applied twice, and two
threads may run it at once. A backward changes neither dy nor the cache, and gives the same answer when called again.
Results have the dtype of the input; float16 is summed in float32.
"""

from numpy_attention.ops.activations import gelu, gelu_backward, relu, relu_backward, silu, silu_backward
from numpy_attention.ops.attention import scaled_dot_product_attention, scaled_dot_product_attention_backward
from numpy_attention.ops.dropout import dropout, dropout_backward
from numpy_attention.ops.embedding import embedding, embedding_backward
from numpy_attention.ops.erf import erf
from numpy_attention.ops.heads import concat_heads, concat_heads_backward, split_heads, split_heads_backward
from numpy_attention.ops.linear import linear, linear_backward
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
from numpy_attention.ops.tiled_attention import tiled_attention, tiled_attention_backward

__all__ = [
    # Chapters 1 to 8: from ids to vectors that know their place
    "linear", "linear_backward", "embedding", "embedding_backward",
    "sinusoidal_positions", "rotary", "rotary_backward", "alibi_slopes", "alibi_bias",
    # Chapters 3 to 7: attention
    "softmax", "softmax_backward",
    "causal_mask", "sliding_window_mask", "padding_mask", "mask_from_blocked", "mask_from_additive",
    "scaled_dot_product_attention", "scaled_dot_product_attention_backward",
    "split_heads", "split_heads_backward", "concat_heads", "concat_heads_backward",
    # Chapters 9 to 11: the rest of a transformer
    "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward",
    "relu", "relu_backward", "gelu", "gelu_backward", "silu", "silu_backward", "erf",
    "dropout", "dropout_backward", "cross_entropy", "cross_entropy_backward",
    # Chapter 12: attention again, in little memory
    "tiled_attention", "tiled_attention_backward",
]
