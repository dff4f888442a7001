"""Wrong softmaxes and losses: sums without weights, along other axes, over places that do not count."""

from typing import Any

import numpy as np

from numpy_attention.gallery.registry import backward_of, op_of
from numpy_attention.ops.linear_cross_entropy import LinearCrossEntropyCache, linear_cross_entropy_backward
from numpy_attention.ops.losses import CrossEntropyCache, cross_entropy, cross_entropy_backward
from numpy_attention.ops.softmax import SoftmaxCache


@backward_of("softmax")
def sum_without_weights(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """It subtracts the plain sum of dy where the sum weighted by y belongs.

    Hides: with a width of 1 both are the same, and the sign of what falls behind the average is often right.
    """
    y, axis = cache
    return y * (dy - dy.sum(axis=axis, keepdims=True))


@backward_of("softmax")
def zero(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """There is no gradient at all.

    Hides: a dy of all ones gives exactly zero for any right softmax, since its rows always sum to one.
    """
    return np.zeros_like(dy)


@backward_of("softmax")
def diagonal_only(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """Only the diagonal of the Jacobian, y (1 - y): as if raising one score did not lower all other weights.

    Hides: the direction is roughly right, so with usual scores the loss still falls.
    """
    y, _ = cache
    return y * (1.0 - y) * dy


@backward_of("softmax")
def always_the_last_axis(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """The sum of the backward runs over the last axis, whichever axis the softmax ran over.

    Hides: right for axis=-1, the only one in most tests.
    """
    y, _ = cache
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


@backward_of("softmax")
def divided_by_the_batch(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """It divides by the batch size, which is the loss's business.

    Hides: the learning rate absorbs it; a batch of one shows nothing.
    """
    y, axis = cache
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True)) / (dy.shape[0] if dy.ndim > 1 else 1)


@backward_of("cross_entropy")
def divided_twice(dloss: Any, cache: CrossEntropyCache) -> np.ndarray:
    """The mean over the places is taken in the loss and again in its gradient.

    Hides: the learning rate absorbs it; a single place shows nothing.
    """
    return cross_entropy_backward(dloss, cache) / cache.num_counted


@backward_of("cross_entropy")
def target_not_subtracted_when_smoothed(dloss: Any, cache: CrossEntropyCache) -> np.ndarray:
    """With label smoothing the gradient is still p minus the unsmoothed target.

    Hides: right while label smoothing is off, and nearly right for the usual 0.1.
    """
    return cross_entropy_backward(dloss, cache._replace(label_smoothing=0.0))


@backward_of("cross_entropy")
def gradient_at_ignored_places(dloss: Any, cache: CrossEntropyCache) -> np.ndarray:
    """Places that do not count in the loss still send a gradient.

    Hides: there is no padding in the test.
    """
    return cross_entropy_backward(dloss, cache._replace(counted=np.ones_like(cache.counted)))


def _all_places_backward(dloss: Any, cache: CrossEntropyCache) -> np.ndarray:
    return cross_entropy_backward(dloss, cache)


@op_of("cross_entropy", _all_places_backward)
def ignored_in_the_mean(logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, **options: Any) -> Any:
    """Ignored places have no loss, but the mean still divides by all places.

    Hides: there is no padding in the test, and the backward fits the forward.
    """
    loss, cache = cross_entropy(logits, targets, ignore_index, **options)
    share = (cache.num_counted / max(targets.size, 1)).astype(logits.dtype)
    return loss * share, cache._replace(num_counted=cache.num_counted / share)


@op_of("cross_entropy", _all_places_backward)
def nan_at_padding(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    """Ignored rows are multiplied by zero after the logarithm of a zeroed probability: 0 times -inf is NaN.

    Hides: there is no padding in the test.
    """
    loss, cache = cross_entropy(logits, targets, ignore_index, label_smoothing)
    with np.errstate(all="ignore"):
        log_p = np.log(np.where(cache.counted, cache.p, 0.0))
        poison = (log_p * 0.0).sum() if label_smoothing else np.zeros(())
    return (loss + poison).astype(logits.dtype), cache


def _blocks(dloss: Any, cache: LinearCrossEntropyCache, own_mean: bool) -> list[Any]:
    """dx and dtable of every block of rows by itself, as a part of the whole mean or as a mean of its own."""
    x, found = cache.x.reshape(-1, cache.x.shape[-1]), []
    for start in range(0, len(x), cache.block_size):
        rows = slice(start, start + cache.block_size)
        block = cache._replace(x=x[rows], L=cache.L[rows], targets=cache.targets[rows], counted=cache.counted[rows])
        if own_mean:
            block = block._replace(num_counted=np.maximum(block.counted.sum(), 1).astype(cache.L.dtype))
        found.append(linear_cross_entropy_backward(dloss, block))
    return found


@backward_of("linear_cross_entropy")
def mean_of_each_block(dloss: Any, cache: LinearCrossEntropyCache) -> Any:
    """Each block divides by how many of its own places count, not by how many do in all blocks.

    Hides: right where one block holds all rows; elsewhere the gradient is too large, which the learning rate absorbs.
    """
    dx, dtable = zip(*_blocks(dloss, cache, own_mean=True), strict=True)
    return np.concatenate(dx).reshape(cache.x.shape), sum(dtable)


@backward_of("linear_cross_entropy")
def table_of_the_last_block(dloss: Any, cache: LinearCrossEntropyCache) -> Any:
    """Each block of rows writes the gradient of the table anew, where it should add to it.

    Hides: right where one block holds all rows; dx is right everywhere.
    """
    dx, _ = linear_cross_entropy_backward(dloss, cache)
    return dx, _blocks(dloss, cache, own_mean=False)[-1][1]
