"""Chapter 19. The residual connection: add x to the output of every sublayer

    pre-norm (2019)                               post-norm (2017)

        x                                             x
        |--------> norm -> sublayer -> dropout        |--------> sublayer -> dropout
        |                                 |           |                         |
       (+) <------------------------------+          (+) <----------------------+
        |                                             |
        |                                            norm
        y                                             y

    y = x + dropout(sublayer(norm(x)))            y = norm(x + dropout(sublayer(x)))

A sum passes its gradient unchanged to both of its terms. Let J_s be the matrix of all slopes ds_i / dx_j of the
branch s:

    y = x + s(x)        dx = dy + J_s^T dy

The backward functions of the branch, one after the other, compute J_s^T dy. In pre-norm no weight multiplies the first
term, dy, on its way down the residual stream: this is why deep transformers can be trained. In post-norm, dy passes
through a norm after every sublayer. So a pre-norm model can be trained without warm-up. But it needs one more norm
after the last block, because the residual stream only grows. Many papers, and the tutorials, write pre-LN and post-LN.

A **branch norm** normalizes the output of the branch before the addition. So no sublayer can write a much longer vector
to the stream than the others. It is the only norm of a residual (OLMo 2), or it follows the norm of pre-norm (Gemma 3):

    y = x + dropout(branch_norm(sublayer(x)))     y = x + dropout(branch_norm(sublayer(norm(x))))
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c16_normalization import Norm
from numpy_attention.ops.c05_dropout import DropoutCache, dropout, dropout_backward
from numpy_attention.ops.c09_normalization import NormCache


class ResidualCache(NamedTuple):
    """What backward needs; `sublayer` is the cache of the sublayer on the branch."""

    norm: NormCache | None  # None without a norm
    sublayer: Any
    branch_norm: NormCache | None
    dropout: DropoutCache | None  # None without a generator


def residual(
    x: np.ndarray, norm: Norm | None, sublayer: Callable[[np.ndarray], tuple[np.ndarray, Any]], pre_norm: bool,
    rate: float, rng: np.random.Generator | None, branch_norm: Norm | None = None,
) -> tuple[np.ndarray, ResidualCache]:
    """Add the output of a sublayer to x, as in one of the pictures and formulas above.

    Shapes: x (B, T, d_model) -> y (B, T, d_model); the sublayer keeps the shape and returns a new array.

    Source: post-norm: Vaswani et al., Attention Is All You Need (2017), section 3.1; pre-norm: Xiong et al., On Layer
    Normalization in the Transformer Architecture (2020), section 3; branch norm: OLMo Team, 2 OLMo 2 Furious (2025).
    """
    h, norm_cache, branch_cache, dropout_cache = x, None, None, None
    if norm is not None and pre_norm:
        h, norm_cache = norm.forward(h)
    h, sublayer_cache = sublayer(h)
    if branch_norm is not None:
        h, branch_cache = branch_norm.forward(h)
    if rng is not None:  # in training
        h, dropout_cache = dropout(h, rate, rng)
    h += x  # changes h, a new array, and not x
    if norm is not None and not pre_norm:
        h, norm_cache = norm.forward(h)
    return h, ResidualCache(norm_cache, sublayer_cache, branch_cache, dropout_cache)


def residual_backward(
    dy: np.ndarray, cache: ResidualCache, norm: Norm | None,
    sublayer_backward: Callable[[np.ndarray, Any], tuple[Any, ...]], pre_norm: bool, branch_norm: Norm | None = None,
) -> tuple[Any, ...]:
    """Gradients of `residual`: dx, the gradients of both norms (None for a norm that is off), then all other results of
    the sublayer's backward.

    Shapes: dy as y -> dx as x
    """
    norm_grads = branch_grads = None
    if norm is not None and cache.norm is not None and not pre_norm:
        # y = norm(x + h)
        dy, norm_grads = norm.backward(dy, cache.norm)
    # y = x + dropout(h): both terms receive dy
    dh = dy if cache.dropout is None else dropout_backward(dy, cache.dropout)
    if branch_norm is not None and cache.branch_norm is not None:
        # h = branch_norm(h)
        dh, branch_grads = branch_norm.backward(dh, cache.branch_norm)
    # h = sublayer(h)
    dx, *others = sublayer_backward(dh, cache.sublayer)
    if norm is not None and cache.norm is not None and pre_norm:
        # h = norm(x)
        dx, norm_grads = norm.backward(dx, cache.norm)
    dx += dy
    return dx, norm_grads, branch_grads, *others
