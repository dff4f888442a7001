"""The direct effect of one part of the residual stream on a logit (Chapter 40), through the last norm."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for

CHAPTER = 40


def direct_effect(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The contribution of a part of the residual stream to a logit, through the norm of the whole stream."""
    return _effect(_centred(part), _sigma(stream, eps), gamma, direction)


def _effect(part: Array, sigma: Array, gamma: Array, direction: Array) -> Array:
    return np.asarray((part * gamma * direction).sum(axis=-1) / sigma)


def _centred(x: Array) -> Array:
    return np.asarray(x - x.mean(axis=-1, keepdims=True))


def _sigma(x: Array, eps: float) -> Array:
    return np.asarray(np.sqrt(x.var(axis=-1) + np.asarray(eps, x.dtype)))


@stands_in_for("direct_effect")
def sigma_of_the_part(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by the sigma of the part instead of the whole stream, so the effects do not sum to the logit.

    Hides: right if the part is the whole stream.
    """
    return direct_effect(part, part, gamma, direction, eps)


@stands_in_for("direct_effect")
def part_not_centred(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The mean of the part is not subtracted, but the norm subtracts the mean of the stream, the sum of all means.

    Hides: right if the mean of the part or the mean of gamma times direction is zero.
    """
    return _effect(part, _sigma(stream, eps), gamma, direction)


@stands_in_for("direct_effect")
def centred_by_the_stream(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The mean of the whole stream is subtracted from each part, so the sum of the parts loses it several times.

    Hides: right if the part is the whole stream, which is a common first test.
    """
    return _effect(part - stream.mean(axis=-1, keepdims=True), _sigma(stream, eps), gamma, direction)


@stands_in_for("direct_effect")
def eps_added_to_sigma(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by sqrt(variance) + eps instead of sqrt(variance + eps).

    Hides: nearly right while eps is small.
    """
    return _effect(_centred(part), _sigma(stream, 0.0) + np.asarray(eps, part.dtype), gamma, direction)


@stands_in_for("direct_effect")
def eps_forgotten(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """eps is not used, but it must be added to the variance, under the root.

    Hides: nearly right while eps is small.
    """
    return direct_effect(part, stream, gamma, direction, 0.0)


@stands_in_for("direct_effect")
def gamma_not_used(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """gamma is left out, but the norm multiplies each element by gamma before the product with the direction.

    Hides: right for a gamma of ones, as in a new model.
    """
    return direct_effect(part, stream, np.ones_like(gamma), direction, eps)


@stands_in_for("direct_effect")
def variance_for_sigma(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by the variance instead of its square root.

    Hides: right if the variance is 1.
    """
    return _effect(_centred(part), _sigma(stream, eps) ** 2, gamma, direction)


@stands_in_for("direct_effect")
def mean_square_for_the_variance(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """It divides by the root of the mean square, as an RMS norm does, but a layer norm first subtracts the mean.

    Hides: right if the mean of the stream is zero.
    """
    sigma = np.sqrt((stream * stream).mean(axis=-1) + np.asarray(eps, part.dtype))
    return _effect(_centred(part), np.asarray(sigma), gamma, direction)


@stands_in_for("direct_effect")
def variance_of_a_sample(part: Array, stream: Array, gamma: Array, direction: Array, eps: float) -> Array:
    """The variance is divided by d_model - 1, as for a sample, but a layer norm divides by d_model.

    Hides: the difference is small for a wide model.
    """
    sigma = np.sqrt(stream.var(axis=-1, ddof=1) + np.asarray(eps, part.dtype))
    return _effect(_centred(part), np.asarray(sigma), gamma, direction)


def _about_effects(rng: np.random.Generator) -> Questions:
    def arrays(T: int, d: int, dtype: Any = np.float64) -> tuple[Array, ...]:
        shapes = (T, d), (T, d), (d,), (T, d)
        part, rest, gamma, direction = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return part + dtype(0.5), part + dtype(2) * rest, gamma, direction

    part, stream, gamma, direction = arrays(1, 3)
    yield "one position, and the whole stream as the part", (stream, stream, gamma, direction, 1e-5)
    yield "one position", (part, stream, gamma, direction, 1e-5)
    yield "several positions", (*arrays(3, 4), 1e-5)
    yield "a large eps", (*arrays(2, 3), 0.5)
    yield "arrays of float32", (*arrays(2, 4, np.float32), 1e-5)


OURS = {"direct_effect": direct_effect}
EXERCISES = (Exercise("direct_effect", 21, quizzes={"direct_effect": Quiz(direct_effect, _about_effects)}),)
