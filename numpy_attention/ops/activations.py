"""Chapter 10. Activations: ReLU, GELU, SiLU

Without a bend between its two linear maps the feed-forward network would be one linear map. An activation acts on
each number by itself, so its Jacobian is diagonal, and every backward in this chapter has the same form:

    y_i = f(x_i)        dL/dx_i = dy_i f'(x_i)

ReLU    f(x) = max(0, x)         f'(x) = 1 for x > 0, else 0 (at the kink itself we choose 0, as everybody does)

GELU    f(x) = x P(x), where P(x) = (1 + erf(x / sqrt(2))) / 2 is the probability that a normal variable is below x.
        By the product rule, with P'(x) = exp(-x^2 / 2) / sqrt(2 pi):
        f'(x) = P(x) + x P'(x)

        GPT-2 and many after it replace P by a curve that needs no erf:
        P(x) = (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)
        P'(x) = (1 - tanh^2 u) / 2 * du/dx,  du/dx = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
        The two forms differ by up to 5e-4. A model must use the backward of the form it uses forward.

SiLU    f(x) = x s(x) with the logistic s(x) = 1 / (1 + exp(-x)), and s' = s (1 - s):
        f'(x) = s + x s (1 - s)

What to cache? The slope f'(x). It costs little while the tanh or the exponential is still at hand, takes the same
memory as x, and leaves a single product for the backward. GELU and SiLU pass over x many times, so they do it in
blocks that stay in the cache (`blocks.py`); the formulas do not notice.
"""

import math
from typing import Any

import numpy as np

from numpy_attention.blocks import in_blocks
from numpy_attention.errors import require_cotangent, require_float, shape_error
from numpy_attention.ops.erf import erf


def relu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Let positive numbers pass and set the rest to zero.

    Formula: y = max(0, x)

    Shapes: x of any shape -> y of the same shape

    Raises: TypeError when x is not an array of floats.

    Source: Nair, Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines (2010).

    >>> relu(np.array([-1.0, 2.0]))[0]
    array([0., 2.])
    """
    require_float("relu", x=x)
    return np.maximum(x, 0.0), x > 0.0


def relu_backward(dy: np.ndarray, cache: np.ndarray) -> np.ndarray:
    """Gradient of `relu`: dx = dy where x > 0, else 0.

    Shapes: dy as y -> dx as x
    """
    positive = cache
    require_cotangent("relu_backward", "dy", dy, positive.shape, dy.dtype)
    # y = max(0, x)
    return dy * positive


def gelu(x: np.ndarray, approximate: str = "tanh") -> tuple[np.ndarray, np.ndarray]:
    """Let each number pass to the degree that it is larger than a normal variable would be.

    Formula: y = x P(x), P(x) = (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 for approximate="tanh",
    P(x) = (1 + erf(x / sqrt(2))) / 2 for approximate="none"

    Shapes: x of any shape -> y of the same shape

    Raises: ValueError for another `approximate`; TypeError when x is not an array of floats.

    Source: Hendrycks, Gimpel, Gaussian Error Linear Units (2016), section 2.

    >>> gelu(np.array([-1.0, 0.0, 3.0]))[0].round(4)
    array([-0.1588,  0.    ,  2.9964])
    """
    require_float("gelu", x=x)
    if approximate not in ("tanh", "none"):
        raise shape_error("gelu", "approximate", '"tanh" or "none" (the exact form, by erf)', repr(approximate))
    normal = _normal_by_tanh if approximate == "tanh" else _normal_by_erf

    y, slope = np.empty_like(x, order="C"), np.empty_like(x, order="C")
    for x_block, y_block, slope_block in in_blocks(x, y, slope):
        P, dP = normal(x_block.astype(_wide(x), copy=False))
        np.multiply(x_block, P, out=y_block)
        np.multiply(x_block, dP, out=slope_block)  # f'(x) = P + x P'
        slope_block += P
    return y, slope


def gelu_backward(dy: np.ndarray, cache: np.ndarray) -> np.ndarray:
    """Gradient of `gelu`: dx = dy (P + x P'), the slope made in the forward.

    Shapes: dy as y -> dx as x
    """
    slope = cache
    require_cotangent("gelu_backward", "dy", dy, slope.shape, slope.dtype)
    # y = x * P(x)
    return dy * slope


def silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weigh each number by the logistic function of itself (also called swish).

    Formula: y = x s, s = 1 / (1 + exp(-x))

    Shapes: x of any shape -> y of the same shape

    Raises: TypeError when x is not an array of floats.

    Source: Elfwing, Uchibe, Doya, Sigmoid-Weighted Linear Units (2018), equation 8.

    >>> silu(np.array([-1000.0, 0.0, 2.0]))[0].round(4)
    array([-0.    ,  0.    ,  1.7616])
    """
    require_float("silu", x=x)
    y, slope = np.empty_like(x, order="C"), np.empty_like(x, order="C")
    for x_block, y_block, slope_block in in_blocks(x, y, slope):
        with np.errstate(over="ignore"):  # exp(1000) may become infinite: 1 / inf is 0, as it should be
            s = np.exp(-x_block, dtype=_wide(x))
        s += 1.0
        np.divide(1.0, s, out=s)
        np.multiply(x_block, s, out=y_block)
        np.subtract(1.0, s, out=slope_block)  # f'(x) = s + x s (1 - s)
        slope_block *= y_block
        slope_block += s
    return y, slope


def silu_backward(dy: np.ndarray, cache: np.ndarray) -> np.ndarray:
    """Gradient of `silu`: dx = dy (s + x s (1 - s)), the slope made in the forward.

    Shapes: dy as y -> dx as x
    """
    slope = cache
    require_cotangent("silu_backward", "dy", dy, slope.shape, slope.dtype)
    # y = x * s(x)
    return dy * slope


def _wide(x: np.ndarray) -> Any:
    """The dtype to compute in: float16 ends at 65504, which exp(12) and the square of 256 are beyond."""
    return np.float32 if x.dtype == np.float16 else x.dtype


def _normal_by_tanh(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x) and P'(x) of GELU's tanh form. `x * x * x`, because `x**3` is over ten times slower."""
    c = math.sqrt(2.0 / math.pi)
    square = x * x
    tanh_u = square * (0.044715 * c)
    tanh_u += c
    tanh_u *= x  # u
    np.tanh(tanh_u, out=tanh_u)

    dP = square  # du/dx = c + 3 * 0.044715 * c * x^2
    dP *= 3.0 * 0.044715 * c
    dP += c
    dP *= 0.5 - 0.5 * tanh_u * tanh_u
    P = tanh_u
    P *= 0.5
    P += 0.5
    return P, dP


def _normal_by_erf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x) and P'(x) of the normal distribution itself."""
    P = erf(x * math.sqrt(0.5))
    P *= 0.5
    P += 0.5
    dP = np.exp(-0.5 * x * x)
    dP *= 1.0 / math.sqrt(2.0 * math.pi)
    return P, dP
