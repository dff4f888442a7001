"""Layer norm and RMS norm (ops: Chapter 9, layers: Chapter 16): any leading axes, widths 1 and 2, any eps."""

import math
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Build, Entry, layer_entry, op_entry, size_of, times
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of
from numpy_attention.layers.normalization import LayerNorm, RMSNorm
from numpy_attention.ops.normalization import NormCache, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward

CHAPTER = 9


def _layer(cls: type) -> Build:
    return lambda sizes, _, dtype: cls(size_of(sizes, "d"), dtype=dtype)


def _of_each_norm() -> list[Entry]:
    norms = []
    for name, spec, wrong in [("layer_norm", ", gamma: d, beta: d", "beta+0 "), ("rms_norm", ", gamma: d", "")]:
        norms += [
            op_entry(name, "x: ... d" + spec, at_least={"d": 3}, wrong=wrong + "gamma+0 x-1 x:int64 gamma:float32"),
            op_entry(name, "x: A d" + spec, "1 leading axis", at_least={"d": 3}),
            op_entry(name, "x: A B C D d" + spec, "4 leading axes", fixed={"A": 2, "B": 1, "C": 2, "D": 3, "d": 4}),
            op_entry(name, "x: B T d" + spec, "width 2", fixed={"d": 2}, tolerance=1e-3),
            op_entry(name, "x: B T d" + spec, "width 1", fixed={"d": 1}, tolerance=1e-3),
            op_entry(name, "x: B T d" + spec, "eps", options={"eps": 0.3}),
            op_entry(
                name, "x: B T d" + spec, "small x", options={"eps": 1e-5}, prepare=times("x", 1e-2), at_least={"d": 4}
            ),
        ]
    return norms


ENTRIES = (
    *_of_each_norm(),
    layer_entry(LayerNorm, "", "x: ... d", _layer(LayerNorm), at_least={"d": 3}, wrong="x-1"),
    layer_entry(RMSNorm, "", "x: ... d", _layer(RMSNorm), at_least={"d": 2}, wrong="x-1"),
)


def plain_layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """Computes one row at a time: subtracts the mean, divides by sqrt(variance + eps)."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        centred = row - sum(row) / len(row)
        variance = sum(centred**2) / len(row)
        rows.append(gamma * centred / math.sqrt(variance + eps) + beta)
    return np.reshape(rows, x.shape)


def plain_rms_norm(x: Array, gamma: Array, eps: float = 1e-6) -> Array:
    """Computes one row at a time: divides by sqrt(mean square + eps)."""
    rows = [gamma * row / math.sqrt(sum(row**2) / len(row) + eps) for row in x.reshape(-1, x.shape[-1])]
    return np.reshape(rows, x.shape)


PLAIN = {"layer_norm": plain_layer_norm, "rms_norm": plain_rms_norm}


def _mean(x: Array) -> Array:
    return np.asarray(x.mean(axis=-1, keepdims=True))


def _through_x_hat(dx_hat: Array, cache: NormCache, d: Any = None) -> Array:
    """dx of a layer norm; the second mean is a sum divided by d."""
    x_hat, r, _ = cache
    along = (dx_hat * x_hat).sum(axis=-1, keepdims=True) / (x_hat.shape[-1] if d is None else d)
    return np.asarray(r * (dx_hat - _mean(dx_hat) - x_hat * along))


@backward_of("layer_norm", diagnosis="the factor `gamma` is left out")
def gamma_left_out(dy: Array, cache: NormCache) -> Any:
    """dx is computed from dy instead of dy * gamma.

    Hides: exact while gamma is all ones, as at initialisation.
    """
    return _through_x_hat(dy, cache), *layer_norm_backward(dy, cache)[1:]


@backward_of("layer_norm", diagnosis="is applied at the wrong place")
def gamma_at_the_end(dy: Array, cache: NormCache) -> Any:
    """dx is multiplied by gamma at the end, but gamma must be applied before the means are taken.

    Hides: exact while all gammas are equal, as at initialisation.
    """
    return _through_x_hat(dy, cache) * cache.gamma, *layer_norm_backward(dy, cache)[1:]


@backward_of("layer_norm", diagnosis="is a `- mean(...)` or a `- sum(...)` term missing?")
def mean_path_forgotten(dy: Array, cache: NormCache) -> Any:
    """x changes the mean, and the mean changes every element: this path, `- mean(dx_hat)`, is missing.

    Hides: the error is small if dx_hat is nearly centred.
    """
    x_hat, r, gamma = cache
    dx_hat = dy * gamma
    return r * (dx_hat - x_hat * _mean(dx_hat * x_hat)), *layer_norm_backward(dy, cache)[1:]


@backward_of("layer_norm", diagnosis="is the path through the variance (or the mean square) missing")
def variance_path_forgotten(dy: Array, cache: NormCache) -> Any:
    """x changes the variance, and the variance scales every element: this path, along x_hat, is missing.

    Hides: one of the d elements has a large error, the others have small errors; wide layers hide the error.
    """
    dx_hat = dy * cache.gamma
    return cache.r * (dx_hat - _mean(dx_hat)), *layer_norm_backward(dy, cache)[1:]


@backward_of("layer_norm", diagnosis="right direction and a wrong length")
def eps_left_out(dy: Array, cache: NormCache) -> Any:
    """The forward divides by sqrt(var + eps), but dx divides by sqrt(var).

    Hides: equal to five digits unless x is nearly constant or eps is large.
    """
    deviation = np.sqrt(np.maximum(_mean(cache.x_hat * cache.x_hat), 1e-30))  # sqrt(var / (var + eps))
    dx = _through_x_hat(dy * cache.gamma, cache._replace(r=cache.r / deviation))
    return dx, *layer_norm_backward(dy, cache)[1:]


@backward_of("layer_norm", diagnosis="the sum over the batch axes (0, 1) is missing")
def two_dimensional_only(dy: Array, cache: NormCache) -> Any:
    """dgamma and dbeta are summed over the first axis only, as if the input were always (B, d).

    Hides: right for (B, d); for (B, T, d) the result (T, d) is broadcast into the parameter without an error.
    """
    dx, dgamma, dbeta = layer_norm_backward(dy, cache)
    if dy.ndim < 3:
        return dx, dgamma, dbeta
    return dx, (dy * cache.x_hat).sum(axis=0), dy.sum(axis=0)


@backward_of("layer_norm", diagnosis="n - 1 instead of n")
def variance_divided_by_d_minus_one(dy: Array, cache: NormCache) -> Any:
    """The forward divides the variance by d, but the gradient through the variance divides by d - 1.

    Hides: one term is off by 1/d, which is below most tolerances at the width of a real model.
    """
    return _through_x_hat(dy * cache.gamma, cache, max(dy.shape[-1] - 1, 1)), *layer_norm_backward(dy, cache)[1:]


def _deviation_backward(dy: Array, cache: tuple[NormCache, Any]) -> Any:
    norm, d = cache
    return _through_x_hat(dy * norm.gamma, norm, d), *layer_norm_backward(dy, norm)[1:]


@op_of("layer_norm", _deviation_backward, diagnosis="the forward gives")
def unbiased_deviation(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Any:
    """The variance is divided by d - 1, as for a sample, but layer norm divides by d.

    Hides: off by half a percent at width 100, and the backward matches the forward.
    """
    d = max(x.shape[-1] - 1, 1)
    centred = x - _mean(x)
    r = 1.0 / np.sqrt((centred * centred).sum(axis=-1, keepdims=True) / d + eps)
    return centred * r * gamma + beta, (NormCache(centred * r, r, gamma), d)


@op_of("layer_norm", _deviation_backward, diagnosis="the forward gives")
def eps_outside_the_root(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Any:
    """It divides by sqrt(var) + eps instead of sqrt(var + eps).

    Hides: equal to five digits unless x is nearly constant, and the backward matches the forward.
    """
    centred = x - _mean(x)
    deviation = np.sqrt(_mean(centred * centred))
    r = 1.0 / (deviation + eps)
    d = x.shape[-1] * np.maximum(r * deviation, 1e-30)
    return centred * r * gamma + beta, (NormCache(centred * r, r, gamma), d)


@backward_of("layer_norm", diagnosis="backward changed dy in place")
def scratch_in_dy(dy: Array, cache: NormCache) -> Any:
    """It overwrites dy with its own results, so a residual branch that reads dy later gets wrong numbers.

    Hides: the returned gradients are right, and tests of a single branch do not read dy again.
    """
    right = layer_norm_backward(dy, cache)
    dy *= cache.gamma
    return right


@backward_of("layer_norm", diagnosis="does backward change its cache in place?")
def scratch_in_the_cache(dy: Array, cache: NormCache) -> Any:
    """It multiplies the cached x_hat in place, so a second backward with the same cache is wrong.

    Hides: every test calls the backward once.
    """
    right = layer_norm_backward(dy, cache)
    np.multiply(cache.x_hat, cache.r, out=cache.x_hat)
    return right


@backward_of("layer_norm", diagnosis="of float32 is float64")
def float64_out_of_float32(dy: Array, cache: NormCache) -> Any:
    """A NumPy scalar, np.sqrt(d), turns float32 into float64, so every later backward runs at half the speed.

    Hides: all values agree to seven digits.
    """
    return _through_x_hat(dy * cache.gamma, cache, np.sqrt(dy.shape[-1]) ** 2), *layer_norm_backward(dy, cache)[1:]


@backward_of("rms_norm", diagnosis="off by the same number in all its elements")
def mean_subtracted(dy: Array, cache: NormCache) -> Any:
    """RMS norm does not subtract the mean; this is the backward of layer norm.

    Hides: each row is off only by a constant.
    """
    return _through_x_hat(dy * cache.gamma, cache), rms_norm_backward(dy, cache)[1]


@op_of(
    "layer_norm", layer_norm_backward,
    diagnosis="the forward mixes the places along axis 1 of x, but the backward does not",
)
def normalized_over_everything(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Any:
    """Mean and variance run over all axes except the first, so the words of a sentence affect each other.

    Hides: right for (B, d), and all numbers still look normalized.
    """
    if x.ndim < 3:
        return layer_norm(x, gamma, beta, eps)
    axes = tuple(range(1, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    r = 1.0 / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + eps)
    return centred * r * gamma + beta, NormCache(centred * r, r, gamma)


@backward_of("rms_norm")
def mean_square_path_forgotten(dy: Array, cache: NormCache) -> Any:
    """dx = r gamma dy, as if x did not change the mean square of its row.

    Hides: dgamma is right, and the loss still falls.
    """
    return dy * cache.gamma * cache.r, rms_norm_backward(dy, cache)[1]


@op_of("rms_norm", rms_norm_backward)
def sum_in_place_of_the_mean(x: Array, gamma: Array, eps: float = 1e-6) -> Any:
    """It divides by the root of the sum of squares instead of their mean, so y is too small by the factor sqrt(d).

    Hides: the backward matches the forward, and gamma can learn the factor.
    """
    d = x.shape[-1]
    y, cache = rms_norm(x, gamma, eps / d)
    root = np.asarray(d**0.5, x.dtype)
    return y / root, cache._replace(x_hat=cache.x_hat / root, r=cache.r / root)


@op_of("rms_norm", rms_norm_backward)
def eps_added_to_the_root(x: Array, gamma: Array, eps: float = 1e-6) -> Any:
    """It divides by sqrt(mean(x^2)) + eps instead of sqrt(mean(x^2) + eps).

    Hides: nearly right unless a row is close to zero.
    """
    r = 1 / (np.sqrt((x * x).mean(axis=-1, keepdims=True)) + np.asarray(eps, x.dtype))
    return gamma * (x * r), NormCache(x * r, r, gamma)


EXERCISES = (
    Exercise("layer_norm", 8, (
        Try("layer_norm", "x: B T d, gamma: d, beta: d", "a batch of sequences", at_least={"d": 3}),
        Try("layer_norm", "x: N d, gamma: d, beta: d", "large eps", {"eps": 0.3}, at_least={"d": 3}),
        Try("layer_norm", "x: ... d, gamma: d, beta: d", "any leading axes", at_least={"d": 3}),
    )),
    Exercise("rms_norm", 8, (
        Try("rms_norm", "x: B T d, gamma: d", "a batch of sequences", at_least={"d": 3}),
        Try("rms_norm", "x: N d, gamma: d", "large eps", {"eps": 0.3}, at_least={"d": 3}),
        Try("rms_norm", "x: ... d, gamma: d", "any leading axes", at_least={"d": 3}),
    ), from_scratch=True),
)
