"""Chapter 56. Straight-through: a gradient that is wrong on purpose

To store a weight in b bits, round it to one of the levels -n s, ..., -s, 0, s, ..., n s with n = 2^(b-1) - 1:

    y = s clip(round(x / s), -n, n)        8 bits: n = 127; 2 bits: n = 1, the levels are -s, 0 and s

One scale s serves the whole array. With 2 bits, s near 1.5 mean |x| loses least: small numbers become 0, large ones -s
or s. With more bits, s = max |x| / n reaches the largest number.

y is a staircase. Its derivative is 0 almost everywhere, and does not exist at the steps. So with the true gradient,
dx = 0, no weight would learn. The **straight-through** estimator uses the gradient of another function, the surrogate
clip(x, -n s, n s), as if nothing had been rounded:

    dx = dy where |x| <= n s, and 0 elsewhere

A gradient checker must call this wrong: it is not the derivative of y. What can be checked is the surrogate. The
optimizer changes the unrounded x; when x has moved past a step, y changes. s is a constant.
"""

import numpy as np

from numpy_attention.errors import require_cotangent, require_number
from numpy_attention.shapes import check_shapes

SHAPES = "x: ..."


def fake_quantize(x: np.ndarray, scale: float, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Round every number to one of 2^bits - 1 levels, but keep floats: what a model with stored integers would compute.

    Formula: y = s clip(round(x / s), -n, n) with s = scale, n = 2^(bits - 1) - 1

    Shapes: x of any shape -> y of the same shape

    Raises: ValueError for bits outside 2 to 16, or a scale outside 1e-30 to 1e30; TypeError for an x without floats.

    Source: Bengio, Léonard, Courville, Estimating or Propagating Gradients Through Stochastic Neurons (2013); three
    levels for the weights of a language model: Ma et al., The Era of 1-bit LLMs (2024), section 2.

    >>> fake_quantize(np.array([-0.9, 0.2, 0.4, 1.3]), scale=0.5, bits=3)[0]
    array([-1. ,  0. ,  0.5,  1.5])
    """
    check_shapes("fake_quantize", SHAPES, x=x)
    n = 2 ** (int(require_number("fake_quantize", "bits", bits, at_least=2, at_most=16, whole=True)) - 1) - 1
    s = x.dtype.type(require_number("fake_quantize", "scale", scale, at_least=1e-30, at_most=1e30))
    y = s * np.clip(np.rint(x / s), -n, n)
    rounding = 1 + 4 * np.finfo(x.dtype).eps  # n s may be rounded below a max |x| that it stands for
    return y, (np.abs(x) <= n * s * rounding).astype(x.dtype)


def fake_quantize_backward(dy: np.ndarray, cache: np.ndarray) -> np.ndarray:
    """The straight-through gradient of `fake_quantize`: dx = dy where |x| <= n s, 0 elsewhere.

    Shapes: dy as y -> dx as x
    """
    slope = cache  # 1 inside, 0 outside
    require_cotangent("fake_quantize_backward", "dy", dy, slope.shape, slope.dtype)
    # y = clip(x, -n s, n s), the surrogate
    return dy * slope
