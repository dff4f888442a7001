"""Chapter 11, continued. The losses of the standard: log-probabilities, class weights, sums

The ONNX standard, as other libraries, splits the cross-entropy into two functions, and gives it three more options. The
language models of this book do without them.

The log-softmax y = x - logsumexp(x) is the logarithm of p, finite even where p is rounded to zero. The derivative of
logsumexp(x) with respect to x_j is p_j (Chapter 11), so

    dy_i/dx_j = [i = j] - p_j        dx = dy - p sum(dy)

The **negative log-likelihood** takes these log-probabilities y. With the target distribution q of Chapter 11 and one
weight w_v for each class, a position has the loss

    loss = -sum_v w_v q_v y_v        dy_v = -w_v q_v

Without smoothing this is -w_t y_t: a rare class with a large weight counts more. With reduction="mean" the sum of all
losses and all gradients are divided by N, the sum of the weights w_t of the counted targets; with "sum" they are not.
With "none" each position has a loss and a dloss.

The **weighted cross-entropy** is both functions in turn, and its backward is both backwards in turn. Let Q = sum_v w_v
q_v, which is 1 without weights. The sum of all dy is -Q, so dx = Q p - w q: again the prediction minus the target.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_cotangent, require_float
from numpy_attention.ops.c01a_sums import as_rows, sum_in_rows
from numpy_attention.ops.c03_softmax import SoftmaxCache, check_softmax
from numpy_attention.ops.c11_losses import check_options, counted_positions, require_single
from numpy_attention.shapes import check_shapes

SHAPES = {
    "log_softmax": "x: ...",
    "negative_log_likelihood": "log_probs: ... V, targets: int<V> ...; V >= 1",
    "weighted_cross_entropy": "logits: ... V, targets: int<V> ...; V >= 1",
}


class NegativeLogLikelihoodCache(NamedTuple):
    """The loss is linear in the log-probabilities, so the backward needs only their factors."""

    factors: np.ndarray  # (N_all, V), w q / N; 0 at ignored positions
    shape: tuple[int, ...]  # of the log-probabilities
    loss_shape: tuple[int, ...]


class WeightedCrossEntropyCache(NamedTuple):
    """The caches of the two functions."""

    softmax: SoftmaxCache
    likelihood: NegativeLogLikelihoodCache


def log_softmax(x: np.ndarray, axis: int = -1) -> tuple[np.ndarray, SoftmaxCache]:
    """The logarithm of the softmax, finite for all finite scores; a row of -inf stays -inf.

    Formula: y = x - log(sum(exp(x)))

    Shapes: x of any shape -> y of the same shape

    Raises: ValueError and TypeError, as `softmax`.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 6.2.2.3.

    >>> log_softmax(np.array([0.0, -10000.0]))[0]
    array([     0., -10000.])
    """
    check_softmax("log_softmax", x, axis)
    x = x - np.maximum(x.max(axis, keepdims=True), float(np.finfo(x.dtype).min))  # as in `softmax`
    e = np.exp(x)
    total = np.maximum(sum_in_rows(e, axis), 1.0)
    return x - np.log(total), SoftmaxCache(e / total, axis)


def log_softmax_backward(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """Gradient of `log_softmax`: dx = dy - p * sum(dy), with the softmax p from the cache.

    Shapes: dy as y -> dx as x
    """
    p, axis = cache
    require_cotangent("log_softmax_backward", "dy", dy, p.shape, p.dtype)
    # y = x - log(sum(exp(x)))
    return dy - p * sum_in_rows(dy, axis)


def negative_log_likelihood(
    log_probs: np.ndarray, targets: np.ndarray, ignore_index: int = -100, class_weights: np.ndarray | None = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> tuple[np.ndarray, NegativeLogLikelihoodCache]:
    """The weighted cross-entropy of given log-probabilities y, from `log_softmax`.

    Formula: loss = sum over counted positions of -sum_v w_v q_v y_v, divided by the sum of w_t for reduction="mean"

    Shapes: log_probs (..., V), targets (...) of integers in [0, V) or ignore_index, class_weights (V,) -> a single
    number, or (...) for reduction="none"

    Raises: ValueError and TypeError, as `cross_entropy`; ValueError for an unknown reduction.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 5.5; smoothing with weights: as in PyTorch.

    >>> float(negative_log_likelihood(np.array([[-1.0, -3.0]]), np.array([1]))[0])
    3.0
    """
    options = (ignore_index, class_weights, reduction, label_smoothing)
    w = _weights("negative_log_likelihood", *options, targets, log_probs=log_probs)
    y, loss_shape = as_rows(log_probs), targets.shape if reduction == "none" else ()  # y: (N_all, V)
    targets, counted, _ = counted_positions(targets, ignore_index, like=y)
    one_hot = targets == np.arange(len(w), like=y)  # (N_all, V)
    q = (1.0 - label_smoothing) * one_hot + label_smoothing / len(w)
    factors = (counted * w * q).astype(y.dtype)
    losses = -(factors * np.where(factors == 0.0, 0.0, y)).sum(axis=-1)  # 0 times -inf would be NaN
    total = (counted * w[targets]).sum()
    N = np.where((total == 0.0) | (reduction != "mean"), 1.0, total).astype(y.dtype)
    loss = losses.reshape(loss_shape) if loss_shape else losses.sum() / N
    return loss, NegativeLogLikelihoodCache(factors / N, log_probs.shape, loss.shape)


def negative_log_likelihood_backward(dloss: np.ndarray | float, cache: NegativeLogLikelihoodCache) -> np.ndarray:
    """Gradient of `negative_log_likelihood`: dlog_probs = -dloss w q / N at counted positions, zero elsewhere.

    Shapes: dloss as the loss -> dlog_probs as log_probs
    """
    dloss = _column("negative_log_likelihood_backward", dloss, cache)
    # loss = sum of -w q y / N
    return (-dloss * cache.factors).astype(cache.factors.dtype).reshape(cache.shape)


def weighted_cross_entropy(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0,
    class_weights: np.ndarray | None = None, reduction: str = "mean",
) -> tuple[np.ndarray, WeightedCrossEntropyCache]:
    """`cross_entropy` with class weights; the result is a mean, a sum or one loss for each position.

    Formula: loss = negative_log_likelihood(log_softmax(logits), targets)

    Shapes: logits (..., V), targets (...) of integers in [0, V) or ignore_index, class_weights (V,) -> a single number,
    or (...) for reduction="none"

    Raises: ValueError and TypeError, as `cross_entropy`; ValueError for an unknown reduction.

    Source: as `cross_entropy` and `negative_log_likelihood`.

    >>> logits, targets, weights = np.zeros((2, 4)), np.array([3, 1]), np.array([1.0, 1.0, 1.0, 5.0])
    >>> losses, _ = weighted_cross_entropy(logits, targets, class_weights=weights, reduction="none")
    >>> losses / np.log(4.0)
    array([5., 1.])
    """
    options = (ignore_index, class_weights, reduction, label_smoothing)
    _weights("weighted_cross_entropy", *options, targets, logits=logits)
    log_probs, of_softmax = log_softmax(logits)
    loss, of_loss = negative_log_likelihood(log_probs, targets, *options)
    return loss, WeightedCrossEntropyCache(of_softmax, of_loss)


def weighted_cross_entropy_backward(dloss: np.ndarray | float, cache: WeightedCrossEntropyCache) -> np.ndarray:
    """Gradient of `weighted_cross_entropy`: dlogits = dloss (Q p - w q) / N at counted positions, zero elsewhere.

    Shapes: dloss as the loss -> dlogits as logits
    """
    _column("weighted_cross_entropy_backward", dloss, cache.likelihood)
    # loss = negative_log_likelihood(log_probs)
    dlog_probs = negative_log_likelihood_backward(dloss, cache.likelihood)
    # log_probs = log_softmax(logits)
    return log_softmax_backward(dlog_probs, cache.softmax)


def _weights(
    op: str, ignore_index: int, class_weights: np.ndarray | None, reduction: str, label_smoothing: float,
    targets: np.ndarray, **logits: Any,
) -> np.ndarray:
    """Check all arguments of a loss; return the class weights (V,) like the logits, ones by default."""
    [(name, x)] = logits.items()
    fixes = {"class_weights": "one weight for each class"}
    fixes |= check_options(op, ignore_index, label_smoothing, name)
    require_choice(op, "reduction", reduction, ("mean", "sum", "none"))
    check_shapes(op, SHAPES[op], extra=ignore_index, fixes=fixes, targets=targets, **logits)
    if class_weights is None:
        return np.ones_like(x, shape=x.shape[-1])
    require_float(op, class_weights=class_weights)
    w = np.asarray(class_weights, like=x).astype(x.dtype)
    check_shapes(op, f"{name}: ... V, class_weights: V", fixes=fixes, class_weights=w, **logits)
    return w


def _column(op: str, dloss: Any, cache: NegativeLogLikelihoodCache) -> Any:
    """The gradient of the loss, as a column (N_all, 1) if each position has a loss; refuse other shapes."""
    if not cache.loss_shape:
        require_single(op, dloss)
        return dloss
    require_cotangent(op, "dloss", dloss, cache.loss_shape, cache.factors.dtype)
    return dloss.reshape(-1, 1)
