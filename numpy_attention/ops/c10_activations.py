"""Chapter 10. Activations: ReLU, GELU, SiLU

A feed-forward network has two linear maps. Without a nonlinear function between them it would be one linear map. An
activation acts on each number separately, so its Jacobian is diagonal, and every backward here has the same form:

    y_i = f(x_i)        dL/dx_i = dy_i f'(x_i)

ReLU    f(x) = max(0, x)         f'(x) = 1 for x > 0, else 0 (there is no derivative at x = 0; the usual choice is 0)

GELU    f(x) = x P(x), where P(x) = (1 + erf(x / sqrt(2))) / 2 is the probability that a standard normal variable is
        below x. By the product rule, with P'(x) = exp(-x^2 / 2) / sqrt(2 pi):
        f'(x) = P(x) + x P'(x)

        GPT-2 and many later models replace P by a curve that needs no erf:
        P(x) = (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)
        P'(x) = (1 - tanh^2 u) / 2 * du/dx = 2 P (1 - P) du/dx,  du/dx = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
        The two forms differ by up to 5e-4. A model must use the same form in its forward and its backward.

SiLU    f(x) = x s, where s = 1 / (1 + exp(-alpha x)) is the logistic function, and alpha = 1 in most models:
        ds/dx = alpha s (1 - s),  f'(x) = s + alpha x s (1 - s)

What to cache? The slope f'(x). It is cheap to compute in the forward, where the tanh or the exponential is available.
It takes the same memory as x, and the backward is a single product.
"""

import math
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_cotangent, require_number
from numpy_attention.ops.c10a_erf import erf
from numpy_attention.pieces import piece_by_piece
from numpy_attention.shapes import check_shapes

SHAPES = "x: ..."


class ReluCache(NamedTuple):
    """The slope is 0 or 1, so one byte for each element is enough."""

    positive: np.ndarray  # bool: x > 0
    dtype: np.dtype


class ActivationCache(NamedTuple):
    """The slope of every element; the backward needs nothing else."""

    slope: np.ndarray


def relu(x: np.ndarray) -> tuple[np.ndarray, ReluCache]:
    """Keep positive numbers and set the others to zero.

    Formula: y = max(0, x)

    Shapes: x of any shape -> y of the same shape

    Raises: TypeError when x is not an array of floats.

    Source: Nair, Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines (2010).

    >>> relu(np.array([-1.0, 2.0]))[0]
    array([0., 2.])
    """
    check_shapes("relu", SHAPES, x=x)
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
    """Multiply each number x by the probability that a standard normal variable is below x.

    Formula: y = x P(x), P(x) = (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 for approximate="tanh",
    P(x) = (1 + erf(x / sqrt(2))) / 2 for approximate="none"

    Shapes: x of any shape -> y of the same shape

    Raises: ValueError for an unknown `approximate`; TypeError when x is not an array of floats.

    Source: Hendrycks, Gimpel, Gaussian Error Linear Units (2016), section 2.

    >>> gelu(np.array([-1.0, 0.0, 3.0]))[0].round(4)
    array([-0.1588,  0.    ,  2.9964])
    """
    check_shapes("gelu", SHAPES, x=x)
    require_choice("gelu", "approximate", approximate, ("tanh", "none"), '"tanh" or "none" (the exact form, by erf)')
    normal = _normal_by_tanh if approximate == "tanh" else _normal_by_erf

    def value_and_slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        P, dP = normal(x.clip(-100.0, 100.0))  # for |x| > 100 P is 0 or 1, but squares may overflow
        return x * P, P + x * dP  # f(x), f'(x)

    y, slope = piece_by_piece(value_and_slope, x)  # both results for all of x, computed in short pieces
    return y, ActivationCache(slope)


def gelu_backward(dy: np.ndarray, cache: ActivationCache) -> np.ndarray:
    """Gradient of `gelu`: dx = dy (P + x P'), with the slope P + x P' from the cache.

    Shapes: dy as y -> dx as x
    """
    (slope,) = cache
    require_cotangent("gelu_backward", "dy", dy, slope.shape, slope.dtype)
    # y = x * P(x)
    return dy * slope


def silu(x: np.ndarray, alpha: float = 1.0) -> tuple[np.ndarray, ActivationCache]:
    """Multiply each number x by the logistic function of alpha x (also called swish).

    Formula: y = x s, s = 1 / (1 + exp(-alpha x))

    Shapes: x of any shape -> y of the same shape

    Raises: TypeError when x is not an array of floats; ValueError when alpha is not a finite number.

    Source: Elfwing et al., Sigmoid-Weighted Linear Units (2018), equation 8; alpha: Ramachandran et al., Swish (2017).

    >>> silu(np.array([-1000.0, 0.0, 2.0]))[0].round(4)
    array([-0.    ,  0.    ,  1.7616])
    """
    check_shapes("silu", SHAPES, x=x)
    alpha = require_number("silu", "alpha", alpha)

    def value_and_slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(over="ignore"):  # exp(1000) overflows to inf; 1 / inf = 0 is correct
            s = 1.0 / (1.0 + np.exp(-alpha * x))
        return x * s, s + alpha * (1.0 - s) * (x * s)  # f(x), f'(x)

    y, slope = piece_by_piece(value_and_slope, x)  # both results for all of x, computed in short pieces
    return y, ActivationCache(slope)


def silu_backward(dy: np.ndarray, cache: ActivationCache) -> np.ndarray:
    """Gradient of `silu`: dx = dy (s + alpha x s (1 - s)), with the slope from the cache.

    Shapes: dy as y -> dx as x
    """
    (slope,) = cache
    require_cotangent("silu_backward", "dy", dy, slope.shape, slope.dtype)
    # y = x * s(alpha x)
    return dy * slope


def _normal_by_tanh(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x) and P'(x) of GELU's tanh form."""
    c, square = math.sqrt(2.0 / math.pi), x * x  # a power x**3 takes twenty times as long
    u = c * (x + 0.044715 * x * square)
    du = c * (1.0 + 3 * 0.044715 * square)  # u'
    P = (1.0 + np.tanh(u)) / 2.0
    return P, 2.0 * P * (1.0 - P) * du  # tanh' = 1 - tanh^2 = 4 P (1 - P)


def _normal_by_erf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x) and P'(x) of the exact form, the normal distribution."""
    P = (1.0 + erf(x / math.sqrt(2.0))) / 2.0
    dP = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return P, dP
