"""Chapter 5. Dropout

During training each number is set to zero with probability p, so that no unit can rely on a single other unit:

    y_i = x_i m_i / (1 - p)        m_i = 1 with probability 1 - p, else 0

The division keeps the expectation: E[y_i] = x_i. It happens here, in training ("inverted" dropout), so nothing has to
be scaled later, when the model is used.

For a given mask y is linear in x with the slope m_i / (1 - p). This gives the backward:

    dx_i = dy_i m_i / (1 - p)

The backward uses the same mask and the same factor 1 / (1 - p). If the factor is missing, all gradients that
pass this op are too small, and no error message will report it. The mask belongs to one call, so it is stored in the
cache, not in a layer: a dropout that is used twice has two masks. The caller's generator draws the mask, so the same
seed gives the same mask.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_generator, require_number
from numpy_attention.shapes import check_shapes

SHAPES = "x: ..."


class DropoutCache(NamedTuple):
    """The mask of one call (None when dropout was off), and the shape and dtype of a gradient."""

    keep_mask: np.ndarray | None  # bool, the shape of x; True = keep
    scale: float  # 1 / (1 - rate)
    shape: tuple[int, ...]
    dtype: np.dtype


def dropout(x: np.ndarray, rate: float, rng: np.random.Generator | None) -> tuple[np.ndarray, DropoutCache]:
    """Set numbers to zero at random and scale up the others; without a generator, or at rate 0, return x itself.

    Formula: y = x * keep_mask / (1 - rate)

    Shapes: x of any shape -> y of the same shape

    Units: rate is the probability that a number is dropped, in [0, 1).

    Raises: ValueError for a rate outside [0, 1); TypeError when x is not an array of floats.

    Source: Srivastava et al., Dropout, JMLR 15 (2014), sections 4 and 10.

    >>> y, cache = dropout(np.ones(8), rate=0.5, rng=np.random.default_rng(0))
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    """
    check_shapes("dropout", SHAPES, x=x)
    rate = check_rate("dropout", "rate", rate, rng)
    if rate == 0.0 or rng is None:
        return x, DropoutCache(None, 1.0, x.shape, x.dtype)

    keep_mask = rng.random(x.shape, dtype=np.float32) >= rate
    keep_mask = np.asarray(keep_mask, like=x[...])  # on the device of x; x[...] is an array even if x is a scalar
    scale = 1.0 / (1.0 - rate)
    y = x * keep_mask * scale
    return y, DropoutCache(keep_mask, scale, x.shape, x.dtype)


def dropout_backward(dy: np.ndarray, cache: DropoutCache) -> np.ndarray:
    """Gradient of `dropout`: dx = dy * keep_mask / (1 - rate), or dy itself if dropout was off.

    Shapes: dy as y -> dx as x
    """
    keep_mask, scale, shape, dtype = cache
    require_cotangent("dropout_backward", "dy", dy, shape, dtype)
    if keep_mask is None:
        return dy
    # y = x * keep_mask * scale
    return dy * keep_mask * scale


def check_rate(op: str, argument: str, rate: float, rng: np.random.Generator | None) -> float:
    """Return the rate; refuse a rate outside [0, 1), and a seed in place of a generator."""
    fix = "it is the share that is dropped, not the share that is kept"
    require_generator(op, "rng", rng)
    return require_number(op, argument, rate, at_least=0, below=1, fix=fix)
