"""Chapter 11. Cross-entropy: how wrong is the prediction?

The model gives V logits for each position, and the softmax p of Chapter 3 turns them into probabilities. The loss is
the negative log-likelihood of the correct token t:

    loss = -log p_t = logsumexp(x) - x_t        logsumexp(x) = log sum_v exp(x_v)

Never compute log(softmax(x)): a probability that underflows to zero has no logarithm. The difference
logsumexp(x) - x_t is finite for any finite logits, if the largest logit is first subtracted from all logits, as in
Chapter 3. This changes neither the loss nor p. An untrained model gives every token a probability of about 1 / V, so
the loss starts near log V.

Gradient. d logsumexp / dx_v = exp(x_v) / sum = p_v. The slope dx_t / dx_v is 1 if v = t, and 0 otherwise; we write it
as [v = t]. So

    dloss/dx_v = p_v - [v = t]

This is the prediction minus the target: the simplest gradient in the book. It is bounded, even if the model is
completely wrong.

Label smoothing replaces the target [v = t] by q_v = (1 - s) [v = t] + s / V. The loss is linear in q, so

    loss = logsumexp(x) - sum_v q_v x_v = logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v        dx_v = p_v - q_v

For many positions, the loss is a mean. Only counted positions enter this mean, and N is the number of counted
positions. A position with target `ignore_index` (padding) adds nothing to the loss, to the gradient or to N. If no
position counts, the loss and the gradient are 0. The backward of the loss divides each row of the gradient by N. No
other backward divides by N.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_number, shape_error
from numpy_attention.ops.c01a_sums import as_rows, sum_in_rows
from numpy_attention.shapes import check_shapes

SHAPES = "logits: ... V, targets: int<V> ...; V >= 1"


class CrossEntropyCache(NamedTuple):
    """The probabilities, the targets and which of them count, and the options."""

    p: np.ndarray  # (N_all, V), softmax of the logits
    targets: np.ndarray  # (N_all, 1), 0 at ignored positions
    counted: np.ndarray  # (N_all, 1) of bool
    num_counted: np.ndarray  # N, at least 1; a number in the dtype of p
    label_smoothing: float
    logits: np.ndarray  # backward needs only the shape


def cross_entropy(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[np.ndarray, CrossEntropyCache]:
    """The mean negative log-likelihood of the targets.

    Formula: loss = mean over counted positions of logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v, with the label
    smoothing s

    Shapes: logits (..., V), targets (...) of integers in [0, V) or ignore_index -> loss, a single number

    Units: nats (natural logarithms), the mean over the counted tokens; s is a share in [0, 1].

    Raises: ValueError for a target outside [0, V), shapes that do not fit, or a smoothing outside [0, 1]; TypeError for
    targets that are not integers.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 6.2.2.3; smoothing: Szegedy et al.,
    Rethinking the Inception Architecture (2016), section 7.

    >>> float(cross_entropy(np.zeros((3, 8)), np.array([1, 7, -100]))[0]) == float(np.log(8.0))
    True
    """
    fixes = check_options("cross_entropy", ignore_index, label_smoothing, "logits")
    check_shapes("cross_entropy", SHAPES, extra=ignore_index, fixes=fixes, logits=logits, targets=targets)
    targets, counted, num_counted = counted_positions(targets, ignore_index, like=logits)
    s = float(label_smoothing)

    x = as_rows(logits)  # (N_all, V)
    x = x - x.max(axis=-1, keepdims=True)  # no exponent is positive
    e = np.exp(x)
    total = sum_in_rows(e)  # (N_all, 1)
    logsumexp = np.log(total)
    x_t = np.take_along_axis(x, targets, axis=-1)  # (N_all, 1)
    losses = logsumexp - x_t
    if s:
        losses = logsumexp - (1.0 - s) * x_t - s * x.mean(axis=-1, keepdims=True)
    loss = np.where(counted, losses, 0.0).sum() / num_counted
    return loss, CrossEntropyCache(e / total, targets, counted, num_counted, s, logits)


def cross_entropy_backward(dloss: np.ndarray | float, cache: CrossEntropyCache) -> np.ndarray:
    """Gradient of `cross_entropy`: dlogits = dloss (p - q) / N at counted positions, zero elsewhere.

    Shapes: dloss a single number -> dlogits as logits
    """
    p, targets, counted, num_counted, s, logits = cache
    require_single("cross_entropy_backward", dloss)
    # loss = sum of the counted losses / N
    dlosses = (counted * dloss / num_counted).astype(p.dtype)  # (N_all, 1)
    # losses = logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v
    dx = p - s / p.shape[-1]  # (N_all, V)
    dx[np.arange(len(p), like=p), targets[:, 0]] -= 1.0 - s  # now p - q; without smoothing p - [v = t]
    dx *= dlosses
    return dx.reshape(logits.shape)


def counted_positions(
    targets: np.ndarray, ignore_index: int, like: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return valid targets, True for each position that counts, and N, the number of these positions, but at least 1.

    Shapes: targets (...) -> (N_all, 1), (N_all, 1), () in the dtype of `like`
    """
    targets = np.asarray(targets, like=like).reshape(-1, 1)  # copied, if the logits are on a GPU
    counted = targets.astype(np.int64) != ignore_index
    safe_targets = np.where(counted, targets, 0)  # an ignored position may get any valid token
    return safe_targets, counted, np.maximum(counted.sum(), 1).astype(like.dtype)


def check_options(op: str, ignore_index: int, label_smoothing: float, logits: str) -> dict[str, str]:
    """Refuse invalid options of a loss; return hints for its arrays, the last one for targets outside [0, V)."""
    require_number(op, "label_smoothing", label_smoothing, at_least=0, at_most=1)
    require_number(op, "ignore_index", ignore_index, whole=True)
    return {
        "targets": f"targets are ids, one for each row of {logits}, not one-hot vectors",
        "V": f"is padding marked with ignore_index = {ignore_index}?",
    }


def require_single(op: str, dloss: Any) -> None:
    """Refuse a gradient of the loss that is not a single number."""
    number = isinstance(dloss, (int, float)) or getattr(getattr(dloss, "dtype", None), "kind", "") in tuple("fiuc")
    if not number or np.ndim(dloss) != 0:
        raise shape_error(op, "dloss", "a single number", np.shape(dloss) or repr(dloss), "use 1.0 for a plain loss")
