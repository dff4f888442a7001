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
        P'(x) = (1 - tanh^2 u) / 2 * du/dx = 2 P (1 - P) du/dx,  du/dx = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
        The two forms differ by up to 5e-4. A model must use the backward of the form it uses forward.

SiLU    f(x) = x s(x) with the logistic s(x) = 1 / (1 + exp(-x)), and s' = s (1 - s):
        f'(x) = s + x s (1 - s)

What to cache? The slope f'(x). It costs little while the tanh or the exponential is still at hand, takes the same
memory as x, and leaves a single product for the backward. GELU and SiLU pass over x many times, so they do it in
pieces that fit fast memory (`pieces.py`); the formulas do not notice.
"""

import math
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_cotangent, require_float
from numpy_attention.ops.erf import erf
from numpy_attention.ops.sums import wide
from numpy_attention.pieces import in_pieces


class ReluCache(NamedTuple):
    """A slope of ones and zeros needs one byte an element."""

    positive: np.ndarray  # bool: x > 0
    dtype: np.dtype


class ActivationCache(NamedTuple):
    """The slope at every element is all that the backward needs."""

    slope: np.ndarray


def relu(x: np.ndarray) -> tuple[np.ndarray, ReluCache]:
    """Let positive numbers pass and set the rest to zero.

    Formula: y = max(0, x)

    Shapes: x of any shape -> y of the same shape

    Raises: TypeError when x is not an array of floats.

    Source: Nair, Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines (2010).

    >>> relu(np.array([-1.0, 2.0]))[0]
    array([0., 2.])
    """
    require_float("relu", x=x)
    return np.maximum(x, 0.0), ReluCache(x > 0.0, x.dtype)


def relu_backward(dy: np.ndarray, cache: ReluCache) -> np.ndarray:
    """Gradient of `relu`: dx = dy where x > 0, else 0.

    Shapes: dy as y -> dx as x
    """
    positive, dtype = cache
    require_cotangent("relu_backward", "dy", dy, positive.shape, dtype)
    # y = max(0, x)
    return dy * positive


def gelu(x: np.ndarray, approximate: str = "tanh") -> tuple[np.ndarray, ActivationCache]:
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
    require_choice("gelu", "approximate", approximate, ("tanh", "none"), '"tanh" or "none" (the exact form, by erf)')
    normal = _normal_by_tanh if approximate == "tanh" else _normal_by_erf

    y, slope = np.empty_like(x, order="C"), np.empty_like(x, order="C")
    for x_piece, y_piece, slope_piece in in_pieces(x, y, slope):
        P, dP = normal(wide(x_piece).clip(-100.0, 100.0))  # P is 0 or 1 long before; squares would overflow
        np.multiply(x_piece, P, out=y_piece)
        np.multiply(x_piece, dP, out=slope_piece)  # f'(x) = P + x P'
        slope_piece += P
    return y, ActivationCache(slope)


def gelu_backward(dy: np.ndarray, cache: ActivationCache) -> np.ndarray:
    """Gradient of `gelu`: dx = dy (P + x P'), the slope made in the forward.

    Shapes: dy as y -> dx as x
    """
    (slope,) = cache
    require_cotangent("gelu_backward", "dy", dy, slope.shape, slope.dtype)
    # y = x * P(x)
    return dy * slope


def silu(x: np.ndarray) -> tuple[np.ndarray, ActivationCache]:
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
    for x_piece, y_piece, slope_piece in in_pieces(x, y, slope):
        with np.errstate(over="ignore"):  # exp(1000) may become infinite: 1 / inf is 0, as it should be
            s = np.exp(-wide(x_piece))
        s += 1.0
        np.divide(1.0, s, out=s)
        np.multiply(x_piece, s, out=y_piece)
        np.subtract(1.0, s, out=slope_piece)  # f'(x) = s + x s (1 - s)
        slope_piece *= y_piece
        slope_piece += s
    return y, ActivationCache(slope)


def silu_backward(dy: np.ndarray, cache: ActivationCache) -> np.ndarray:
    """Gradient of `silu`: dx = dy (s + x s (1 - s)), the slope made in the forward.

    Shapes: dy as y -> dx as x
    """
    (slope,) = cache
    require_cotangent("silu_backward", "dy", dy, slope.shape, slope.dtype)
    # y = x * s(x)
    return dy * slope


def _normal_by_tanh(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x) and P'(x) of GELU's tanh form. `x * x * x`, because `x**3` is over ten times slower."""
    c = math.sqrt(2.0 / math.pi)
    square = x * x
    u = 0.044715 * c * square
    u += c
    u *= x
    P = np.tanh(u, out=u)
    P += 1.0
    P *= 0.5
    dP = 6.0 * 0.044715 * c * square  # 2 P (1 - P) du/dx, factor by factor, from 2 du/dx on
    dP += 2.0 * c
    dP *= P
    dP *= 1.0 - P
    return P, dP


def _normal_by_erf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x) and P'(x) of the normal distribution itself."""
    P = 0.5 + 0.5 * erf(x * math.sqrt(0.5))
    dP = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return P, dP
