"""Part I. Pure functions: each file is one chapter, and each forward is followed by its backward.

    y, cache = op(x, ..., **options)    an op never changes its inputs
    dx, ...  = op_backward(dy, cache)   one gradient for each differentiable array, in the order of the arguments

A function stores nothing: everything the backward needs is in the cache. So an op may be applied twice, and two threads
may run it at the same time. A backward changes neither dy nor the cache, and a second call gives the same gradients.
The arrays are float32 or float64, and results have the dtype of the input.

Who owns the arrays? The caller owns results and gradients and may change them in place. Three exceptions save a copy:
split_heads and concat_heads may return a view of their input; dropout that is off returns x itself, and its backward
returns dy itself; the results of softmax and tiled_attention are also part of their caches. A cache holds the arguments
themselves, not copies: do not change an argument of an op before its backward is done.

The line SHAPES of a chapter is its contract: "x: ... d_in, w: d_in d_out, b?: d_out" says that x may have any axes
before d_in, that w has the same d_in, and that b may be None. `check_shapes` compares the arguments with this line. An
array may be on a GPU, so an argument such as `like=x` makes a new array on the device of x.
"""

from numpy_attention.ops.c01_linear import linear, linear_backward
from numpy_attention.ops.c02_embedding import embedding, embedding_backward
from numpy_attention.ops.c03_softmax import softmax, softmax_backward
from numpy_attention.ops.c04_masks import (
    causal_mask,
    mask_from_additive,
    mask_from_blocked,
    padding_mask,
    sliding_window_mask,
)
from numpy_attention.ops.c05_dropout import dropout, dropout_backward
from numpy_attention.ops.c06_attention import scaled_dot_product_attention, scaled_dot_product_attention_backward
from numpy_attention.ops.c06a_flex_attention import flex_attention, flex_attention_backward
from numpy_attention.ops.c07_heads import concat_heads, concat_heads_backward, split_heads, split_heads_backward
from numpy_attention.ops.c08_positions import (
    alibi_bias,
    alibi_slopes,
    rotary,
    rotary_backward,
    sinusoidal_positions,
)
from numpy_attention.ops.c08a_rotate import rotate, rotate_backward
from numpy_attention.ops.c09_normalization import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from numpy_attention.ops.c10_activations import gelu, gelu_backward, relu, relu_backward, silu, silu_backward
from numpy_attention.ops.c10a_erf import erf
from numpy_attention.ops.c11_losses import cross_entropy, cross_entropy_backward
from numpy_attention.ops.c11a_weighted_losses import (
    log_softmax,
    log_softmax_backward,
    negative_log_likelihood,
    negative_log_likelihood_backward,
    weighted_cross_entropy,
    weighted_cross_entropy_backward,
)
from numpy_attention.ops.c12_tiled_attention import tiled_attention, tiled_attention_backward, tiled_attention_weights
from numpy_attention.ops.c12a_tiles import Band
from numpy_attention.ops.c12b_linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_backward

__all__ = [
    # Chapters 1 and 2: from ids to vectors
    "linear", "linear_backward", "embedding", "embedding_backward",
    # Chapters 3 to 8: attention and its parts
    "softmax", "softmax_backward",
    "causal_mask", "sliding_window_mask", "padding_mask", "mask_from_blocked", "mask_from_additive",
    "dropout", "dropout_backward",
    "scaled_dot_product_attention", "scaled_dot_product_attention_backward",
    "flex_attention", "flex_attention_backward",
    "split_heads", "split_heads_backward", "concat_heads", "concat_heads_backward",
    "sinusoidal_positions", "rotary", "rotary_backward", "alibi_slopes", "alibi_bias", "rotate", "rotate_backward",
    # Chapters 9 to 11: the rest of a transformer
    "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward",
    "relu", "relu_backward", "gelu", "gelu_backward", "silu", "silu_backward", "erf",
    "cross_entropy", "cross_entropy_backward", "log_softmax", "log_softmax_backward",
    "negative_log_likelihood", "negative_log_likelihood_backward",
    "weighted_cross_entropy", "weighted_cross_entropy_backward",
    # Chapter 12: attention and the loss in little memory
    "tiled_attention", "tiled_attention_backward", "tiled_attention_weights", "Band",
    "linear_cross_entropy", "linear_cross_entropy_backward",
]
