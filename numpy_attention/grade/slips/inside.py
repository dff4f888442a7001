"""Slips in looking inside a model: the gradients of an edit, induction heads, and effects on a logit."""

from typing import Any

import numpy as np

from numpy_attention.grade import references
from numpy_attention.grade.slips.registry import slip
from numpy_attention.inside.edits import EditCache, edit_backward

Array = np.ndarray


@slip("edit")
def repeated_along_one_axis_alone(dy: Array, cache: EditCache) -> Any:
    """dadd is summed over the first axis that add was repeated along, and of the others the first place is taken.

    Hides: right where add was repeated along one axis or none.
    """
    dx, dadd = edit_backward(dy, cache)
    if dadd is None or cache.add_shape is None:
        return dx, dadd
    shape = (1,) * (dy.ndim - len(cache.add_shape)) + cache.add_shape
    axes = [axis for axis, size in enumerate(shape) if size == 1 and dy.shape[axis] > 1]
    summed = dy.sum(axis=axes[0], keepdims=True) if axes else dy.copy()
    return dx, summed[tuple(slice(0, size) for size in shape)].reshape(cache.add_shape)


@slip("edit")
def gradient_of_add_left_at_zero(dy: Array, cache: EditCache) -> Any:
    """dadd is zero, as if what was added were a constant: it moves y by as much as it is moved itself.

    Hides: dx is right; and where nothing was added all is.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx, None if dadd is None else np.zeros_like(dadd)


def _at(weights: Array, N: int, shift: int) -> Array:
    t = np.arange(N, 2 * N)
    return weights[:, t, t - N + shift]


@slip("prefix_matching", "stand_in")
def earlier_copy_itself(weights: Array, N: int) -> Array:
    """It takes key t - N, the earlier copy of the token; what came next stands one further, at t - N + 1.

    Hides: heads that look at the same token are found, and they are no rarer.
    """
    return np.asarray(_at(weights, N, 0).mean(axis=-1))


@slip("prefix_matching", "stand_in")
def last_query_left_out(weights: Array, N: int) -> Array:
    """The last query, t = 2N - 1, is left out: it has no next token to be right about, but it looks all the same.

    Hides: of many queries one changes little.
    """
    return np.asarray(_at(weights, N, 1)[:, :-1].mean(axis=-1))


@slip("prefix_matching", "stand_in")
def token_before_the_earlier_copy(weights: Array, N: int) -> Array:
    """It takes key t - N - 1, the token before the earlier copy; what came next stands at t - N + 1.

    Hides: shapes agree; the first query takes the very last key, which it cannot see, and nobody is told.
    """
    return np.asarray(_at(weights, N, -1).mean(axis=-1))


@slip("prefix_matching", "stand_in")
def sum_over_the_second_half(weights: Array, N: int) -> Array:
    """The weights of the N queries are added up, where their mean is asked for: divide by N.

    Hides: the order of the heads is right, and for N = 1 all is.
    """
    return np.asarray(_at(weights, N, 1).sum(axis=-1))


@slip("prefix_matching", "stand_in")
def divided_by_all_queries(weights: Array, N: int) -> Array:
    """The sum is divided by 2N, the number of all queries, where only the N of the second half count.

    Hides: the order of the heads is right; a perfect head has one half.
    """
    return np.asarray(_at(weights, N, 1).sum(axis=-1) / np.asarray(2 * N, weights.dtype))


@slip("prefix_matching", "stand_in")
def queries_and_keys_exchanged(weights: Array, N: int) -> Array:
    """weights[:, key, query]: the queries are the second axis, and the keys the last.

    Hides: the shapes agree; under a causal mask almost all is zero.
    """
    return np.asarray(_at(weights.swapaxes(-1, -2), N, 1).mean(axis=-1))


@slip("prefix_matching", "stand_in")
def first_half_counted_too(weights: Array, N: int) -> Array:
    """The mean of the first N queries on the keys one further: they have no earlier copy; the second half has.

    Hides: the shapes agree.
    """
    t = np.arange(N)
    return np.asarray(weights[:, t, t + 1].mean(axis=-1))


@slip("prefix_matching", "stand_in")
def whole_block_averaged(weights: Array, N: int) -> Array:
    """The mean is over a block of N queries and N keys; to each query belongs one key of them, a diagonal.

    Hides: right for N = 1, and for a head that looks evenly.
    """
    return np.asarray(weights[:, N : 2 * N, 1 : N + 1].mean(axis=(1, 2)))


def _effect(part: Array, sigma: Array, gamma: Array | None, direction: Array) -> Array:
    return np.asarray((part * (direction if gamma is None else gamma * direction)).sum(axis=-1) / sigma)


def _centred(x: Array) -> Array:
    return np.asarray(x - x.mean(axis=-1, keepdims=True))


def _sigma(x: Array, eps: float) -> Array:
    return np.asarray(np.sqrt(x.var(axis=-1) + np.asarray(eps, x.dtype)))


@slip("direct_effect", "stand_in")
def sigma_of_the_part(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by the sigma of the part, where that of the whole stream belongs: so the effects do not add up.

    Hides: right where the part is the whole stream.
    """
    return references.direct_effect(part, part, gamma, direction, eps)


@slip("direct_effect", "stand_in")
def part_not_centred(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The mean of the part is not taken off; the norm takes off the mean of the stream, and each part its own of it.

    Hides: right where the part's mean is zero, or that of gamma times direction.
    """
    return _effect(part, _sigma(stream, eps), gamma, direction)


@slip("direct_effect", "stand_in")
def centred_by_the_stream(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The mean of the whole stream is taken off each part, so that all parts together lose it as often as there are.

    Hides: right where the part is the whole stream, which is what one tries first.
    """
    return _effect(part - stream.mean(axis=-1, keepdims=True), _sigma(stream, eps), gamma, direction)


@slip("direct_effect", "stand_in")
def eps_beside_the_sigma(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by sqrt(variance) + eps, where eps belongs under the root.

    Hides: the same but for a small share while eps is small.
    """
    return _effect(_centred(part), _sigma(stream, 0.0) + np.asarray(eps, part.dtype), gamma, direction)


@slip("direct_effect", "stand_in")
def eps_forgotten(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """eps takes no part; it belongs under the root, to the variance.

    Hides: the same but for a small share while eps is small.
    """
    return _effect(_centred(part), _sigma(stream, 0.0), gamma, direction)


@slip("direct_effect", "stand_in")
def gamma_not_used(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """gamma is left out: it stands between the norm and the direction, number by number.

    Hides: right for a gamma of ones, which is that of a fresh model.
    """
    return _effect(_centred(part), _sigma(stream, eps), None, direction)


@slip("direct_effect", "stand_in")
def variance_for_sigma(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by the variance, where the norm divides by its root.

    Hides: right where the variance is 1.
    """
    return _effect(_centred(part), _sigma(stream, eps) ** 2, gamma, direction)


@slip("direct_effect", "stand_in")
def mean_square_for_the_variance(
    part: Array, stream: Array, gamma: Array, direction: Array, eps: float
) -> Array:
    """It divides by the root of the mean square, as an RMS norm does; the variance is that of the centred stream.

    Hides: right where the mean of the stream is zero.
    """
    sigma = np.sqrt((stream * stream).mean(axis=-1) + np.asarray(eps, part.dtype))
    return _effect(_centred(part), np.asarray(sigma), gamma, direction)


@slip("direct_effect", "stand_in")
def variance_of_a_sample(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The variance is divided by d_model - 1, as of a sample; a layer norm divides by d_model.

    Hides: the wider the model, the smaller the difference.
    """
    sigma = np.sqrt(stream.var(axis=-1, ddof=1) + np.asarray(eps, part.dtype))
    return _effect(_centred(part), np.asarray(sigma), gamma, direction)
