"""The plain forms of the cross-entropy and of the negative log-likelihood."""

import math
from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array


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


PLAIN = {"cross_entropy": plain_cross_entropy}
