"""Chapter 9. Layer norm and RMS norm

Layer norm gives every vector of width d the mean 0 and the variance 1. Then gamma and beta scale and shift each
feature. Let x_hat be the normalized vector, and let r be 1 divided by the standard deviation of x:

    mean = sum_i x_i / d        var = sum_i (x_i - mean)^2 / d        (the biased variance: divided by d)
    r = 1 / sqrt(var + eps)     x_hat_i = (x_i - mean) r              y_i = gamma_i x_hat_i + beta_i

The last line is easy. All rows use the same gamma and beta, so their gradients are sums over rows:

    dbeta_i = sum_n dy_ni       dgamma_i = sum_n dy_ni x_hat_ni       dx_hat_i = dy_i gamma_i

Note that gamma enters here, before the steps below. Two mistakes are easy to overlook. A backward without gamma gives
the right dx only while all gammas are 1, as at initialisation. A backward that multiplies by gamma at the end gives
the right dx only while all gammas are equal.

x_hat depends on x_j in three ways: directly, through the mean, and through r. The definitions give dmean/dx_j = 1/d
and dvar/dx_j = 2 (x_j - mean) / d. (var also depends on x_j through the mean, but this path adds nothing, because
the deviations x_i - mean sum to zero.) Since dr/dvar = -r^3 / 2, we get dr/dx_j = -r^2 x_hat_j / d. Let [i = j] be 1
if i equals j, and 0 otherwise. Together:

    dx_hat_i/dx_j = r [i = j] - r / d - r x_hat_i x_hat_j / d

Multiply by dx_hat_i and sum over i. Write mean(.) for the average over the d elements of the row:

    dx = r * (dx_hat - mean(dx_hat) - x_hat * mean(dx_hat * x_hat))

Geometrically, at eps = 0, this formula removes two parts of dx_hat: the part along the vector of ones and the part
along x_hat. The two directions are at right angles. If x moves along one of them, x_hat does not change. With eps
above 0 the second direction is not quite free: a longer x has a slightly longer x_hat. So a little of the part along
x_hat remains.

RMS norm does not subtract the mean: x_hat = x r with r = 1 / sqrt(mean(x^2) + eps). So no path goes through the mean:

    dx = r * (dx_hat - x_hat * mean(dx_hat * x_hat))
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_number
from numpy_attention.ops.c01a_sums import as_rows, dot_in_rows, sum_in_rows, sum_over_rows
from numpy_attention.shapes import check_shapes

SHAPES = {"layer_norm": "x: ... d, gamma: d, beta: d; d >= 1", "rms_norm": "x: ... d, gamma: d; d >= 1"}
FIXES = dict.fromkeys(("gamma", "beta"), "the norm is over the last axis only")
WHY_EPS = "eps prevents a division by zero for a constant vector"


class NormCache(NamedTuple):
    """The backward uses the normalized input twice: for dgamma and for dx."""

    x_hat: np.ndarray  # (..., d)
    r: np.ndarray  # (..., 1), 1 divided by the standard deviation, or by the root mean square
    gamma: np.ndarray  # (d,)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> tuple[np.ndarray, NormCache]:
    """Normalize each vector to mean 0 and variance 1, then scale and shift it.

    Formula: y = gamma (x - mean) / sqrt(var + eps) + beta, mean and (biased) variance over the last axis

    Shapes: x (..., d), gamma (d,), beta (d,) -> y (..., d)

    Units: eps has the units of x squared. If the sum of x^2 exceeds the largest number (|x| near 1e19 in float32),
    y is NaN.

    Raises: ValueError when gamma or beta do not fit x, or eps is not positive; TypeError for arrays that are not
    floats of one dtype.

    Source: Ba, Kiros, Hinton, Layer Normalization (2016), equation 4.

    >>> y, cache = layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2))
    >>> y.round(4)
    array([[-1.,  1.]])
    """
    check_shapes("layer_norm", SHAPES["layer_norm"], fixes=FIXES, x=x, gamma=gamma, beta=beta)
    eps = require_number("layer_norm", "eps", eps, above=0, fix=WHY_EPS)
    deviation = x - sum_in_rows(x) / x.shape[-1]  # x - mean
    var = _mean_of_squares(deviation)  # (..., 1)
    r = 1.0 / np.sqrt(var + eps)
    x_hat = deviation * r
    y = gamma * x_hat + beta
    return y, NormCache(x_hat, r, gamma)


def layer_norm_backward(dy: np.ndarray, cache: NormCache) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of `layer_norm`: dx = r (dx_hat - mean(dx_hat) - x_hat mean(dx_hat x_hat)), dx_hat = dy gamma.

    Shapes: dy (..., d) -> dx (..., d), dgamma (d,), dbeta (d,)
    """
    x_hat, r, gamma = cache
    require_cotangent("layer_norm_backward", "dy", dy, x_hat.shape, gamma.dtype)
    d = dy.shape[-1]

    # y = gamma * x_hat + beta
    dbeta = sum_over_rows(as_rows(dy))  # (d,)
    dgamma = sum_over_rows(as_rows(dy * x_hat))  # (d,)
    dx_hat = dy * gamma  # (..., d)
    # x_hat = (x - mean) * r
    dx = r * (dx_hat - sum_in_rows(dx_hat) / d - x_hat * (dot_in_rows(dx_hat, x_hat) / d))
    return dx, dgamma, dbeta


def rms_norm(x: np.ndarray, gamma: np.ndarray, eps: float = 1e-6) -> tuple[np.ndarray, NormCache]:
    """Scale each vector to a root mean square of 1, then by gamma.

    Formula: y = gamma x / sqrt(mean(x^2) + eps), the mean over the last axis

    Shapes: x (..., d), gamma (d,) -> y (..., d)

    Units: eps has the units of x squared; 1e-6 is the usual value for RMS norm, 1e-5 for layer norm. If the sum of x^2
    exceeds the largest number (|x| near 1e19 in float32), y is NaN.

    Raises: ValueError when gamma does not fit x, or eps is not positive; TypeError for arrays that are not floats of
    one dtype.

    Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), equation 4.

    >>> rms_norm(np.array([[3.0, 4.0]]), np.ones(2))[0].round(4)
    array([[0.8485, 1.1314]])
    """
    check_shapes("rms_norm", SHAPES["rms_norm"], fixes=FIXES, x=x, gamma=gamma)
    eps = require_number("rms_norm", "eps", eps, above=0, fix=WHY_EPS)

    r = 1.0 / np.sqrt(_mean_of_squares(x) + eps)  # (..., 1)
    x_hat = x * r
    y = gamma * x_hat
    return y, NormCache(x_hat, r, gamma)


def rms_norm_backward(dy: np.ndarray, cache: NormCache) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `rms_norm`: dx = r (dx_hat - x_hat mean(dx_hat x_hat)), dx_hat = dy gamma.

    Shapes: dy (..., d) -> dx (..., d), dgamma (d,)
    """
    x_hat, r, gamma = cache
    require_cotangent("rms_norm_backward", "dy", dy, x_hat.shape, gamma.dtype)
    d = dy.shape[-1]

    # y = gamma * x_hat
    dgamma = sum_over_rows(as_rows(dy * x_hat))  # (d,)
    dx_hat = dy * gamma  # (..., d)
    # x_hat = x * r
    dx = r * (dx_hat - x_hat * (dot_in_rows(dx_hat, x_hat) / d))
    return dx, dgamma


def _mean_of_squares(x: np.ndarray) -> np.ndarray:
    """mean(x^2) of each row; NaN if the squares overflow, so that x_hat does not become 0 in silence."""
    mean = dot_in_rows(x, x) / x.shape[-1]  # (..., 1)
    return np.where(np.isinf(mean), np.nan, mean)
