"""Dropout (Chapter 5): with a fixed mask, with rate 0, and in evaluation."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, generator, op_entry
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.dropout import DropoutCache, dropout, dropout_backward

CHAPTER = 5


def _on(_: Sizes) -> dict[str, Any]:
    return {"rate": 0.4, "rng": generator()}


ENTRIES = (
    op_entry("dropout", "x: ... d", options=_on, wrong="x:int64 x[list]"),
    op_entry("dropout", "x: B T d", "off", options={"rate": 0.0, "rng": None}),
    op_entry("dropout", "x: B T d", "in evaluation", options={"rate": 0.4, "rng": None}),
)


def plain_dropout(x: Array, rate: float, rng: np.random.Generator | None) -> Array:
    """Returns x without a generator; with a generator it draws the same numbers as the op."""
    if rng is None or rate == 0.0:
        return x
    kept = rng.random(x.shape, dtype=np.float32) >= rate
    return np.asarray(np.where(kept, x / (1.0 - rate), 0.0))


PLAIN = {"dropout": plain_dropout}


@backward_of("dropout", diagnosis="the factor 1/(1 - rate) is left out")
def dropout_scale_left_out(dy: Array, cache: DropoutCache) -> Array:
    """The forward divides by 1 - rate, but the gradient does not.

    Hides: it acts like a smaller learning rate, and dropout is off in the test.
    """
    return dy if cache.keep_mask is None else dy * cache.keep_mask


_LAST_MASK: list[DropoutCache] = []


def _of_the_last_mask(dy: Array, _: DropoutCache) -> Array:
    last = _LAST_MASK[-1]
    same = last.keep_mask is None or last.keep_mask.shape == dy.shape
    return dropout_backward(dy, last) if same else np.zeros_like(dy)


@op_of("dropout", _of_the_last_mask, diagnosis="is data stored outside the cache")
def one_mask_for_two_uses(x: Array, rate: float, rng: np.random.Generator | None) -> Any:
    """The mask is stored on the dropout object, so a second forward overwrites the mask of the first.

    Hides: the test uses dropout once, or with rate 0.
    """
    y, cache = dropout(x, rate, rng)
    _LAST_MASK[:] = [cache]
    return y, cache


@op_of("dropout", diagnosis="the forward gives")
def evaluation_rescales(x: Array, rate: float, rng: np.random.Generator | None) -> Any:
    """Inverted dropout divides by 1 - rate in training; this function also multiplies by 1 - rate in evaluation.

    Hides: a test with rate 0, or always with an rng, does not see it.
    """
    if rng is None:
        return x * (1.0 - rate), DropoutCache(np.ones(x.shape, bool), 1.0 - rate, x.shape, x.dtype)
    return dropout(x, rate, rng)


def _dropout(x: Array, rate: float, rng: np.random.Generator | None, invert: bool, scale: float) -> Any:
    if rng is None:
        return x, DropoutCache(None, 1.0, x.shape, x.dtype)
    kept = (rng.random(x.shape, dtype=np.float32) >= rate) ^ invert
    cache = DropoutCache(kept, scale, x.shape, x.dtype)
    return dropout_backward(x, cache), cache  # like the forward, the backward multiplies by the mask and the scale


@op_of("dropout", dropout_backward)
def kept_not_scaled_up(x: Array, rate: float, rng: np.random.Generator | None) -> Any:
    """Kept elements are not divided by 1 - rate, so sums in training are smaller than in evaluation.

    Hides: the backward matches the forward, so every check of gradients passes.
    """
    return _dropout(x, rate, rng, False, 1.0)


@op_of("dropout", dropout_backward)
def rate_taken_for_the_share_kept(x: Array, rate: float, rng: np.random.Generator | None) -> Any:
    """`rate` is the fraction of dropped elements, but this function keeps this fraction and divides by `rate`.

    Hides: right on average for a rate of one half; the backward matches the forward.
    """
    return _dropout(x, rate, rng, True, 1 / rate)


EXERCISES = (
    Exercise("dropout", 6, (
        Try("dropout", "x: N d", "in training", _on),
        Try("dropout", "x: ... d", "in use", {"rate": 0.4, "rng": None}),
    ), from_scratch=True, leave_out=("one_mask_for_two_uses",)),  # this mistake shows only in a second run
)
