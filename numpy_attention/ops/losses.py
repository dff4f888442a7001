"""Chapter 11. Cross-entropy: how wrong is the prediction?

The model gives V logits for each place, the softmax p of Chapter 3 makes probabilities of them, and the loss is the
surprise about the token that really stood there, t:

    loss = -log p_t = logsumexp(x) - x_t        logsumexp(x) = m + log sum_v exp(x_v - m), m = max(x)

Never compute log(softmax(x)): a probability that underflows to zero has no logarithm. The difference on the right
is finite for any finite logits. A model that knows nothing gives every token 1 / V, so training starts near log V.

Gradient. d logsumexp / dx_v = exp(x_v) / sum = p_v, and dx_t / dx_v = [v = t], so

    dloss/dx_v = p_v - [v = t]

what was predicted minus what happened: the simplest gradient in the book, and bounded however wrong the model is.

Label smoothing asks for q_v = (1 - s) [v = t] + s / V in place of [v = t]. The loss is linear in q, so

    loss = logsumexp(x) - sum_v q_v x_v = logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v        dx_v = p_v - q_v

The mean runs over the counted places only, N of them: a place whose target is `ignore_index` (padding) has no loss,
no gradient, and no part in N. With nothing to count the loss is 0, and so is the gradient. Each row of the gradient is
divided by N once, here, and nowhere else.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_float, require_integers, shape_error, value_error
from numpy_attention.ops.sums import sum_in_rows, wide


class CrossEntropyCache(NamedTuple):
    """The probabilities, what was asked for, and how many places count."""

    p: np.ndarray  # (N_all, V), softmax of the logits; in float32 when they are float16
    targets: np.ndarray  # (N_all,), 0 at ignored places
    counted: np.ndarray  # (N_all, 1) of bool
    num_counted: np.ndarray  # N, at least 1, a number in the dtype of p
    label_smoothing: float
    logits: np.ndarray  # for its shape and dtype


def cross_entropy(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[np.ndarray, CrossEntropyCache]:
    """The mean surprise about the targets.

    Formula: loss = mean over counted places of logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v, s the label smoothing

    Shapes: logits (..., V), targets (...) of integers in [0, V) or ignore_index -> loss, a single number

    Units: nats, as a mean per counted token; s is a share in [0, 1].

    Raises: ValueError for a target outside [0, V), shapes that do not meet, or a smoothing outside [0, 1];
    TypeError for targets that are not integers.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 6.2.2.3; smoothing: Szegedy et al.,
    Rethinking the Inception Architecture (2016), section 7.

    >>> float(cross_entropy(np.zeros((3, 8)), np.array([1, 7, -100]))[0]) == float(np.log(8.0))
    True

    Derivation: Chapter 11, the head of numpy_attention/ops/losses.py.
    """
    _check_cross_entropy(logits, targets, ignore_index, label_smoothing)
    targets = np.asarray(targets, like=logits)  # moved, if the logits live on a GPU
    V = logits.shape[-1]
    x = wide(logits.reshape(-1, V))  # (N_all, V)
    counted = targets.reshape(-1, 1) != ignore_index  # (N_all, 1)
    safe_targets = np.where(counted, targets.reshape(-1, 1), 0)  # (N_all, 1): any token will do where none counts
    num_counted = np.maximum(counted.sum(), 1).astype(x.dtype)

    shifted = x - x.max(axis=-1, keepdims=True)  # (N_all, V)
    picked = np.take_along_axis(shifted, safe_targets, axis=-1)  # (N_all, 1)
    if label_smoothing:
        picked = (1.0 - label_smoothing) * picked + label_smoothing * shifted.mean(axis=-1, keepdims=True)
    p = np.exp(shifted, out=shifted)
    total = sum_in_rows(p)  # (N_all, 1)
    p /= total
    surprise = np.log(total) - picked  # (N_all, 1): the maximum cancels
    loss = np.where(counted, surprise, 0.0).sum() / num_counted

    cache = CrossEntropyCache(p, safe_targets[:, 0], counted, num_counted, label_smoothing, logits)
    return loss.astype(logits.dtype), cache


def cross_entropy_backward(dloss: np.ndarray | float, cache: CrossEntropyCache) -> np.ndarray:
    """Gradient of `cross_entropy`: dlogits = dloss (p - q) / N at counted places, zero elsewhere.

    Shapes: dloss a single number -> dlogits as logits
    """
    p, targets, counted, num_counted, s, logits = cache
    _check_dloss(dloss)
    # loss = mean(logsumexp(x) - (1 - s) x_t - (s / V) sum x), so dx = p - q
    dx = p - s / p.shape[-1] if s else p.copy()  # (N_all, V)
    dx[np.arange(len(targets), like=targets), targets] -= 1.0 - s  # one target a row: no index repeats
    dx *= counted * (dloss / num_counted).astype(p.dtype)
    return dx.reshape(logits.shape).astype(logits.dtype, copy=False)


def _check_cross_entropy(logits: np.ndarray, targets: np.ndarray, ignore_index: int, label_smoothing: float) -> None:
    require_float("cross_entropy", logits=logits)
    require_integers("cross_entropy", "targets", targets)
    if logits.ndim == 0 or logits.shape[-1] == 0 or targets.shape != logits.shape[:-1]:
        one_hot = targets.shape == logits.shape
        fix = "did you pass one-hot vectors? targets are ids" if one_hot else "one id for each row of logits"
        expected = f"(...) = {logits.shape[:-1]} as in logits {logits.shape}"
        raise shape_error("cross_entropy", "targets", expected, targets.shape, fix)
    if not 0.0 <= label_smoothing <= 1.0:
        raise value_error("cross_entropy", "label_smoothing", "in [0, 1]", label_smoothing)
    counted = np.where(targets == ignore_index, 0, targets)
    fix = f"is padding marked with ignore_index = {ignore_index}?"
    require_integers("cross_entropy", "targets", counted, below=logits.shape[-1], fix=fix)


def _check_dloss(dloss: np.ndarray | float) -> None:
    if np.ndim(dloss) != 0:
        raise shape_error("cross_entropy_backward", "dloss", "a single number", np.shape(dloss), "1.0 for a plain loss")
