"""Wrong norms: gamma at the wrong place, a path through mean or variance lost, what others read overwritten."""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gallery.registry import backward_of, op_of
from numpy_attention.ops.normalization import NormCache, layer_norm, layer_norm_backward, rms_norm_backward


def _mean(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.mean(axis=-1, keepdims=True))


def _through_x_hat(dx_hat: np.ndarray, cache: NormCache) -> np.ndarray:
    x_hat, r, _ = cache
    dx: np.ndarray = r * (dx_hat - _mean(dx_hat) - x_hat * _mean(dx_hat * x_hat))
    return dx


@backward_of("layer_norm")
def gamma_left_out(dy: np.ndarray, cache: NormCache) -> Any:
    """dx is computed from dy where it must be computed from dy * gamma.

    Hides: exact while gamma is all ones, as at initialisation.
    """
    _, dgamma, dbeta = layer_norm_backward(dy, cache)
    return _through_x_hat(dy, cache), dgamma, dbeta


@backward_of("layer_norm")
def gamma_at_the_end(dy: np.ndarray, cache: NormCache) -> Any:
    """dx is multiplied by gamma at the end; gamma must enter before the means are taken.

    Hides: exact while all gammas are equal, as the ones are at initialisation.
    """
    _, dgamma, dbeta = layer_norm_backward(dy, cache)
    return _through_x_hat(dy, cache) * cache.gamma, dgamma, dbeta


@backward_of("layer_norm")
def mean_path_forgotten(dy: np.ndarray, cache: NormCache) -> Any:
    """x moves the mean, and the mean moves every element: that path, `- mean(dx_hat)`, is missing.

    Hides: small where dx_hat is nearly centred.
    """
    _, dgamma, dbeta = layer_norm_backward(dy, cache)
    x_hat, r, gamma = cache
    dx_hat = dy * gamma
    return r * (dx_hat - x_hat * _mean(dx_hat * x_hat)), dgamma, dbeta


@backward_of("layer_norm")
def variance_path_forgotten(dy: np.ndarray, cache: NormCache) -> Any:
    """x moves the variance, and the variance scales every element: that path, along x_hat, is missing.

    Hides: one element in d is off by much, the others by little; wide layers hide it.
    """
    _, dgamma, dbeta = layer_norm_backward(dy, cache)
    dx_hat = dy * cache.gamma
    return cache.r * (dx_hat - _mean(dx_hat)), dgamma, dbeta


@backward_of("layer_norm")
def two_dimensional_only(dy: np.ndarray, cache: NormCache) -> Any:
    """dgamma and dbeta are summed over the first axis, as if the input were always (B, d).

    Hides: right for (B, d); for (B, T, d) the result (T, d) is broadcast into the parameter without a word.
    """
    dx, dgamma, dbeta = layer_norm_backward(dy, cache)
    if dy.ndim < 3:
        return dx, dgamma, dbeta
    return dx, (dy * cache.x_hat).sum(axis=0), dy.sum(axis=0)


@backward_of("layer_norm")
def variance_divided_by_d_minus_one(dy: np.ndarray, cache: NormCache) -> Any:
    """The forward divides the variance by d, the gradient of its path divides by d - 1.

    Hides: off by 1/d of one term; at the width of a real model below most tolerances.
    """
    _, dgamma, dbeta = layer_norm_backward(dy, cache)
    x_hat, r, gamma = cache
    dx_hat = dy * gamma
    d = max(dy.shape[-1] - 1, 1)
    return r * (dx_hat - _mean(dx_hat) - x_hat * (dx_hat * x_hat).sum(axis=-1, keepdims=True) / d), dgamma, dbeta


class _Spread(NamedTuple):
    """x_hat, one over the deviation, the factor of the path along x_hat, and gamma."""

    x_hat: np.ndarray
    inverse: np.ndarray
    along: Any
    gamma: np.ndarray


def _spread_backward(dy: np.ndarray, cache: _Spread) -> Any:
    x_hat, inverse, along, gamma = cache
    lead = tuple(range(dy.ndim - 1))
    dx_hat = dy * gamma
    dx = inverse * (dx_hat - _mean(dx_hat) - x_hat * along * (dx_hat * x_hat).sum(axis=-1, keepdims=True))
    return dx, np.asarray((dy * x_hat).sum(axis=lead)), np.asarray(dy.sum(axis=lead))


@op_of("layer_norm", _spread_backward)
def unbiased_deviation(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> Any:
    """The variance is divided by d - 1, as for a sample; layer norm divides by d.

    Hides: off by half a percent at width 100, and the backward fits the forward.
    """
    d = max(x.shape[-1] - 1, 1)
    centred = x - _mean(x)
    inverse = 1.0 / np.sqrt((centred * centred).sum(axis=-1, keepdims=True) / d + eps)
    x_hat = centred * inverse
    return x_hat * gamma + beta, _Spread(x_hat, inverse, 1.0 / d, gamma)


@op_of("layer_norm", _spread_backward)
def eps_outside_the_root(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> Any:
    """It divides by sqrt(var) + eps where the formula divides by sqrt(var + eps).

    Hides: the same to five digits unless x is nearly constant, and the backward fits the forward.
    """
    centred = x - _mean(x)
    deviation = np.sqrt(_mean(centred * centred))
    inverse = 1.0 / (deviation + eps)
    x_hat = centred * inverse
    along = 1.0 / (x.shape[-1] * np.maximum(inverse * deviation, 1e-30))
    return x_hat * gamma + beta, _Spread(x_hat, inverse, along, gamma)


@backward_of("layer_norm")
def scratch_in_dy(dy: np.ndarray, cache: NormCache) -> Any:
    """It uses dy as scratch space, so whoever still reads dy, such as a residual branch, reads something else.

    Hides: the returned gradients are right; tests of a single branch never look at dy again.
    """
    right = layer_norm_backward(dy, cache)
    dy *= cache.gamma
    return right


@backward_of("layer_norm")
def scratch_in_the_cache(dy: np.ndarray, cache: NormCache) -> Any:
    """It multiplies the cached x_hat in place, so a second backward of the same cache is wrong.

    Hides: every test calls backward once.
    """
    right = layer_norm_backward(dy, cache)
    np.multiply(cache.x_hat, cache.r, out=cache.x_hat)
    return right


@backward_of("layer_norm")
def float64_out_of_float32(dy: np.ndarray, cache: NormCache) -> Any:
    """A NumPy scalar, np.sqrt(d), makes float64 out of float32: half the speed from here on down.

    Hides: all values agree to seven digits.
    """
    x_hat, r, gamma = cache
    _, dgamma, dbeta = layer_norm_backward(dy, cache)
    root = np.sqrt(np.float64(dy.shape[-1]))
    dx_hat = dy * gamma
    along = (dx_hat * x_hat).sum(axis=-1, keepdims=True) / root / root
    return r * (dx_hat - _mean(dx_hat) - x_hat * along), dgamma, dbeta


@backward_of("rms_norm")
def mean_subtracted(dy: np.ndarray, cache: NormCache) -> Any:
    """RMS norm leaves the mean alone; this is the backward of layer norm.

    Hides: it differs only by a constant for each row.
    """
    _, dgamma = rms_norm_backward(dy, cache)
    return _through_x_hat(dy * cache.gamma, cache), dgamma


@op_of("layer_norm", layer_norm_backward)
def normalized_over_everything(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> Any:
    """Mean and variance over all axes but the first: the words of a sentence see each other.

    Hides: right for (B, d), and every number still looks normalized.
    """
    if x.ndim < 3:
        return layer_norm(x, gamma, beta, eps)
    axes = tuple(range(1, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    r = 1.0 / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + eps)
    x_hat = centred * r
    return x_hat * gamma + beta, NormCache(x_hat, r, gamma)
