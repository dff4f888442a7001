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

The backward functions of the branch, one after the other, compute J_s^T dy. The sum that runs through all sublayers of
a model is its residual stream. In pre-norm no weight multiplies the first term, dy, on its way down this stream: this
is why deep transformers can be trained. In post-norm, dy passes through a norm after every sublayer. So a pre-norm
model can be trained without a slow start (warm-up, Chapter 26). But it needs one more norm after the last block,
because the residual stream only grows. Other names of the two forms are pre-LN and post-LN.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c13_layer import Layer
from numpy_attention.ops.c05_dropout import DropoutCache, dropout, dropout_backward


class ResidualCache(NamedTuple):
    """What backward needs; `sublayer` is the cache of the sublayer on the branch."""

    norm: Any
    sublayer: Any
    dropout: DropoutCache


def residual(
    x: np.ndarray, norm: Layer, sublayer: Any, pre_norm: bool, rate: float, rng: np.random.Generator | None, /,
    **inputs: Any,
) -> tuple[np.ndarray, ResidualCache]:
    """Add the output of a sublayer to x, as in one of the two pictures; the sublayer is a layer, and gets the
    `inputs` too.

    Shapes: x (B, T, d_model) -> y (B, T, d_model); the sublayer keeps the shape and returns a new array.

    Source: post-norm: Vaswani et al., Attention Is All You Need (2017), section 3.1; pre-norm: Xiong et al., On Layer
    Normalization in the Transformer Architecture (2020), section 3.
    """
    if pre_norm:
        h, of_norm = norm.forward(x)
        h, of_sublayer = sublayer.forward(h, **inputs)
        y, of_dropout = dropout(h, rate, rng)
        y += x  # y is a new array, x stays
    else:
        h, of_sublayer = sublayer.forward(x, **inputs)
        h, of_dropout = dropout(h, rate, rng)
        h += x
        y, of_norm = norm.forward(h)
    return y, ResidualCache(of_norm, of_sublayer, of_dropout)


def residual_backward(
    dy: np.ndarray, cache: ResidualCache, norm: Layer, sublayer: Any, pre_norm: bool
) -> tuple[Any, ...]:
    """Gradients of `residual`: dx, the gradients of the norm, and the other results of the sublayer's backward.

    Shapes: dy as y -> dx as x
    """
    if pre_norm:
        # y = x + dropout(sublayer(norm(x)))
        dh = dropout_backward(dy, cache.dropout)
        dh, *others = sublayer.backward(dh, cache.sublayer)
        dx, of_norm = norm.backward(dh, cache.norm)
        dx += dy
    else:
        # y = norm(x + dropout(sublayer(x)))
        dsum, of_norm = norm.backward(dy, cache.norm)
        dh = dropout_backward(dsum, cache.dropout)
        dx, *others = sublayer.backward(dh, cache.sublayer)
        dx += dsum
    return dx, of_norm, *others
