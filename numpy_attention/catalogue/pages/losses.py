"""The cross-entropy (Chapter 11): ignored positions, label smoothing, class weights, reductions, logits of 1e4."""

import math
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, op_entry, size_of, times
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.losses import (
    CrossEntropyCache,
    cross_entropy,
    cross_entropy_backward,
    negative_log_likelihood_backward,
    reduced,
)

CHAPTER = 11

ROWS = "logits: B T V, targets: int<V> B T"
PADDED = "logits: B T V, targets: int<V|-100> B T"
LOG_PROBS = "log_probs: B T V, targets: int<V|-100> B T"


def _options(sizes: Sizes, **others: Any) -> dict[str, Any]:
    return {"class_weights": 0.5 + 0.3 * np.arange(size_of(sizes, "V")), **others}


def nothing_counts(inputs: Arrays, sizes: Sizes) -> Arrays:
    """Makes every target padding."""
    inputs["targets"][...] = -100
    return inputs


ENTRIES = (
    op_entry("cross_entropy", ROWS, wrong="targets+0 targets:float64 targets=-1 targets=999 logits:int64 logits+0"),
    op_entry("cross_entropy", "logits: V, targets: int<V>", "one place"),
    op_entry("cross_entropy", PADDED, "ignore_index"),
    op_entry("cross_entropy", "logits: N V, targets: int<V|7777> N", "another index", options={"ignore_index": 7777}),
    op_entry("cross_entropy", ROWS, "label smoothing", options={"label_smoothing": 0.1}),
    op_entry("cross_entropy", PADDED, "label smoothing, ignore_index", options={"label_smoothing": 0.3}),
    op_entry("cross_entropy", PADDED, "nothing counts", prepare=nothing_counts),
    op_entry("cross_entropy", PADDED, "logits of 1e4", prepare=times("logits", 1e4)),
    op_entry("negative_log_likelihood", LOG_PROBS, wrong="targets+0 targets:float64 targets=-1 log_probs:int64"),
    op_entry("negative_log_likelihood", "log_probs: V, targets: int<V>", "one place"),
    *(
        op_entry(op, spec, f"class weights, {how}", options=partial(_options, reduction=how))
        for op, spec in (("cross_entropy", PADDED), ("negative_log_likelihood", LOG_PROBS))
        for how in ("mean", "sum", "none")
    ),
    *(
        op_entry(
            "cross_entropy", PADDED, f"class weights, label smoothing, {how}",
            options=partial(_options, reduction=how, label_smoothing=0.2),
        )
        for how in ("mean", "sum", "none")
    ),
)


def plain_cross_entropy(logits: Array, targets: Array, **options: Any) -> Array:
    """The negative log-likelihood of log p, which is computed for one row of the logits at a time."""
    rows = [x - x.max() - math.log(sum(np.exp(x - x.max()))) for x in logits.reshape(-1, logits.shape[-1])]
    return plain_negative_log_likelihood(np.reshape(rows, logits.shape), targets, **options)


def plain_negative_log_likelihood(
    log_probs: Array, targets: Array, ignore_index: int = -100, class_weights: Array | None = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Array:
    """Computes the loss of one position at a time; an ignored position has the weight 0."""
    V, losses, weights = log_probs.shape[-1], [], []
    for log_p, t in zip(log_probs.reshape(-1, V), targets.reshape(-1)):
        w = np.ones(V) if class_weights is None else class_weights
        weights.append(0.0 if t == ignore_index else w[t])
        target = (1.0 - label_smoothing) * (np.arange(V) == t) + label_smoothing / V
        losses.append(0.0 if t == ignore_index else -sum(w * target * log_p))
    if reduction == "none":
        return np.reshape(losses, targets.shape)
    return np.asarray(sum(losses) / ((sum(weights) or 1.0) if reduction == "mean" else 1.0))


PLAIN = {"cross_entropy": plain_cross_entropy, "negative_log_likelihood": plain_negative_log_likelihood}


@backward_of("cross_entropy", diagnosis="a mean instead of a sum, or a mean applied twice")
def divided_twice(dloss: Any, cache: CrossEntropyCache) -> Array:
    """The mean over the positions is taken in the loss and again in its gradient.

    Hides: the learning rate absorbs the factor; right for a single position.
    """
    return cross_entropy_backward(dloss, cache) / cache.num_counted


@backward_of("cross_entropy", diagnosis="is the 1/n of a mean missing")
def mean_left_out(dloss: Any, cache: CrossEntropyCache) -> Array:
    """The loss is a mean over the positions, but the gradient lacks the factor 1/N.

    Hides: the direction is right, and the learning rate or Adam absorbs the factor; right for a single position.
    """
    return cross_entropy_backward(dloss, cache) * cache.num_counted


@backward_of("cross_entropy", diagnosis="is the gradient of a binary loss")
def gradient_of_a_binary_loss(dloss: Any, cache: CrossEntropyCache) -> Array:
    """(p - q) / (p (1 - p)) is the gradient of a binary loss with respect to p; for these logits it must be p - q.

    Hides: the signs are right, so the loss falls, unless p is so close to 0 or 1 that the step is much too large.
    """
    slope = np.maximum(cache.p * (1 - cache.p), np.finfo(cache.p.dtype).eps).reshape(cache.logits.shape)
    return cross_entropy_backward(dloss, cache) / slope.astype(cache.logits.dtype)


@op_of("cross_entropy", cross_entropy_backward, diagnosis="does only one of forward and backward have a small constant")
def constant_in_the_logarithm(logits: Array, targets: Array, **options: Any) -> Any:
    """The loss is -log(p + 1e-8), but the backward is the backward of -log(p).

    Hides: the error is about 1e-8 of the gradient. It is large only if p is below 1e-8: then the loss hardly changes.
    """
    loss, cache = cross_entropy(logits, targets, **options)
    if cache.label_smoothing or cache.class_weights is not None:
        return loss, cache
    losses = -np.log(np.take_along_axis(cache.p, cache.targets[:, None], axis=-1) + np.asarray(1e-8, cache.p.dtype))
    return reduced(losses, cache.counted, cache.num_counted, cache.loss_shape).astype(logits.dtype), cache


@backward_of("cross_entropy", diagnosis="right without the option label_smoothing")
def target_not_subtracted_when_smoothed(dloss: Any, cache: CrossEntropyCache) -> Array:
    """With label smoothing the gradient still subtracts the unsmoothed target from p.

    Hides: right without label smoothing, and nearly right for the usual 0.1.
    """
    return cross_entropy_backward(dloss, cache._replace(label_smoothing=0.0))


@backward_of("cross_entropy", diagnosis="hidden or ignored elements still get a gradient")
def gradient_at_ignored_places(dloss: Any, cache: CrossEntropyCache) -> Array:
    """Positions that the loss ignores still get a gradient.

    Hides: there is no padding in the test.
    """
    return cross_entropy_backward(dloss, cache._replace(counted=np.ones_like(cache.counted)))


@op_of("cross_entropy", cross_entropy_backward, diagnosis="the forward gives")
def ignored_in_the_mean(logits: Array, targets: Array, ignore_index: int = -100, **options: Any) -> Any:
    """Ignored positions have no loss, but the mean still divides by the number of all positions.

    Hides: there is no padding in the test, and the backward matches the forward.
    """
    loss, cache = cross_entropy(logits, targets, ignore_index, **options)
    share = (cache.num_counted / max(targets.size, 1)).astype(logits.dtype)
    return loss * share, cache._replace(num_counted=cache.num_counted / share)


@op_of("cross_entropy", cross_entropy_backward, diagnosis="0 times infinity is NaN")
def nan_at_padding(logits: Array, targets: Array, label_smoothing: float = 0.0, **options: Any) -> Any:
    """Ignored rows are multiplied by zero after the logarithm of a zero probability: 0 times -inf is NaN.

    Hides: there is no padding in the test.
    """
    loss, cache = cross_entropy(logits, targets, label_smoothing=label_smoothing, **options)
    with np.errstate(all="ignore"):
        log_p = np.log(np.where(cache.counted, cache.p, 0.0))
        poison = (log_p * 0.0).sum() if label_smoothing else np.zeros(())
    return (loss + poison).astype(logits.dtype), cache


@backward_of("negative_log_likelihood", diagnosis="a factor that differs from row to row")
def class_weights_not_in_the_gradient(dloss: Any, cache: CrossEntropyCache) -> Array:
    """The loss of a rare class weighs more, but its gradient does not.

    Hides: right if all class weights are 1.
    """
    return negative_log_likelihood_backward(dloss, cache._replace(class_weights=None))


@backward_of("negative_log_likelihood", diagnosis="must be zero: check the indexing there")
def class_0_at_ignored_positions(dloss: Any, cache: CrossEntropyCache) -> Array:
    """The targets of ignored positions are replaced by 0 as an index, and then class 0 gets their gradient.

    Hides: there is no padding in the test.
    """
    return negative_log_likelihood_backward(dloss, cache._replace(counted=np.ones_like(cache.counted)))


EXERCISES = (
    Exercise("cross_entropy", 11, (
        Try("cross_entropy", "logits: B T V, targets: int<V> B T"),
        Try("cross_entropy", "logits: B T V, targets: int<V|-100> B T", "ignored places"),
        Try("cross_entropy", "logits: N V, targets: int<V|-100> N", "smoothing", {"label_smoothing": 0.2}),
    )),
)
