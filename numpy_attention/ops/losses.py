"""Chapter 11. Cross-entropy: how wrong is the prediction?

The model gives V logits for each position, and the softmax p of Chapter 3 turns them into probabilities. The loss is
the negative log-likelihood of the correct token t:

    loss = -log p_t = logsumexp(x) - x_t        logsumexp(x) = m + log sum_v exp(x_v - m), m = max(x)

Never compute log(softmax(x)): a probability that underflows to zero has no logarithm. The difference
logsumexp(x) - x_t is finite for any finite logits. An untrained model gives every token a probability of about 1 / V,
so the loss starts near log V.

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

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_float, require_integers, require_number, shape_error
from numpy_attention.ops.sums import as_rows, sum_in_rows, wide


class CrossEntropyCache(NamedTuple):
    """The probabilities, the targets and options, and the number of counted positions."""

    p: np.ndarray  # (N_all, V), softmax of the logits; in float32 when they are float16
    targets: np.ndarray  # (N_all,), 0 at ignored positions
    counted: np.ndarray  # (N_all, 1) of bool
    num_counted: np.ndarray  # N, at least 1, a number in the dtype of p
    label_smoothing: float
    logits: np.ndarray  # backward needs only the shape and the dtype


def cross_entropy(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[np.ndarray, CrossEntropyCache]:
    """The mean negative log-likelihood of the targets.

    Formula: loss = mean over counted positions of logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v, with the label
    smoothing s

    Shapes: logits (..., V), targets (...) of integers in [0, V) or ignore_index -> loss, a single number

    Units: nats (natural logarithms), the mean over the counted tokens; s is a share in [0, 1].

    Raises: ValueError for a target outside [0, V), shapes that do not fit, or a smoothing outside [0, 1];
    TypeError for targets that are not integers.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 6.2.2.3; smoothing: Szegedy et al.,
    Rethinking the Inception Architecture (2016), section 7.

    >>> float(cross_entropy(np.zeros((3, 8)), np.array([1, 7, -100]))[0]) == float(np.log(8.0))
    True
    """
    require_float("cross_entropy", logits=logits)
    check_targets("cross_entropy", targets, logits.shape, ignore_index, label_smoothing)
    x = wide(as_rows(logits))  # (N_all, V)
    safe_targets, counted, num_counted = counted_positions(targets, ignore_index, like=x)
    losses, p, _, total = negative_log_likelihood_rows(x, safe_targets, label_smoothing)
    p /= total
    loss = mean_over_counted(losses, counted, num_counted)
    cache = CrossEntropyCache(p, safe_targets[:, 0], counted, num_counted, label_smoothing, logits)
    return loss.astype(logits.dtype), cache


def cross_entropy_backward(dloss: np.ndarray | float, cache: CrossEntropyCache) -> np.ndarray:
    """Gradient of `cross_entropy`: dlogits = dloss (p - q) / N at counted positions, zero elsewhere.

    Shapes: dloss a single number -> dlogits as logits
    """
    p, targets, counted, num_counted, s, logits = cache
    check_dloss("cross_entropy_backward", dloss)
    dx = gradient_in_rows(p.copy(), targets, counted, num_counted, s, dloss)  # (N_all, V)
    return dx.reshape(logits.shape).astype(logits.dtype, copy=False)


def counted_positions(
    targets: np.ndarray, ignore_index: int, like: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return valid targets, True for each position that counts, and N, the number of counted positions.

    N is at least 1 and has the dtype of `like`.

    Shapes: targets (...) -> (N_all, 1), (N_all, 1) of bool, ()
    """
    targets = np.asarray(targets, like=like).reshape(-1, 1)  # copied, if the logits are on a GPU
    counted = not_ignored(targets, ignore_index)
    safe_targets = np.where(counted, targets, 0)  # an ignored position may get any valid token
    return safe_targets, counted, np.maximum(counted.sum(), 1).astype(like.dtype)


def not_ignored(targets: np.ndarray, ignore_index: int) -> np.ndarray:
    """True where a target counts, in an array with the shape of targets."""
    native = targets.astype(targets.dtype.type, copy=False)  # NumPy 2.0 crashes on big-endian uint64 != -100
    return native != ignore_index


def negative_log_likelihood_rows(
    x: np.ndarray, targets: np.ndarray, label_smoothing: float, out: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The loss of every row, logsumexp(x) - sum_v q_v x_v; also exp(x - m), m, and the row sums of exp(x - m).

    Shapes: x (N, V), targets (N, 1) -> (N, 1), (N, V) in `out`, (N, 1), (N, 1)
    """
    m = x.max(axis=-1, keepdims=True)  # (N, 1)
    shifted = np.subtract(x, m, out=out)  # (N, V)
    picked = np.take_along_axis(shifted, targets, axis=-1)  # (N, 1)
    if label_smoothing:
        picked = (1.0 - label_smoothing) * picked + label_smoothing * shifted.mean(axis=-1, keepdims=True)
    e = np.exp(shifted, out=shifted)
    total = sum_in_rows(e)  # (N, 1)
    return np.log(total) - picked, e, m, total  # the maximum m cancels


def mean_over_counted(losses: np.ndarray, counted: np.ndarray, num_counted: np.ndarray) -> np.ndarray:
    """The mean loss over the counted positions.

    Shapes: losses (N_all, 1), counted (N_all, 1) -> ()
    """
    return np.where(counted, losses, 0.0).sum() / num_counted


def gradient_in_rows(
    p: np.ndarray,
    targets: np.ndarray,
    counted: np.ndarray,
    num_counted: np.ndarray,
    label_smoothing: float,
    dloss: np.ndarray | float,
) -> np.ndarray:
    """dloss (p - q) / N at counted positions, zero elsewhere; overwrites p.

    If the caller passes the rows in several blocks, N is the number of counted rows in all blocks together.

    Shapes: p (N, V), targets (N,), counted (N, 1) -> (N, V)
    """
    # loss = mean(logsumexp(x) - (1 - s) x_t - (s / V) sum x), so dx = p - q
    dx = p
    if label_smoothing:
        dx -= label_smoothing / dx.shape[-1]
    dx[np.arange(len(targets), like=targets), targets] -= 1.0 - label_smoothing  # one index for each row
    dx *= counted * (dloss / num_counted).astype(dx.dtype)
    return dx


def check_targets(
    name: str, targets: np.ndarray, logits_shape: tuple[int, ...], ignore_index: int, label_smoothing: float
) -> None:
    """Refuse targets that are not one token id for each row of logits, and an invalid label_smoothing.

    Raises: TypeError for targets that are not integers, otherwise ValueError.
    """
    require_integers(name, "targets", targets)
    if len(logits_shape) == 0 or logits_shape[-1] == 0 or targets.shape != logits_shape[:-1]:
        one_hot = targets.shape == logits_shape
        fix = "did you pass one-hot vectors? targets are ids" if one_hot else "one id for each row of logits"
        expected = f"(...) = {logits_shape[:-1]} as in logits {logits_shape}"
        raise shape_error(name, "targets", expected, targets.shape, fix)
    require_number(name, "label_smoothing", label_smoothing, at_least=0, at_most=1)
    require_number(name, "ignore_index", ignore_index, whole=True)
    counted = np.where(not_ignored(targets, ignore_index), targets, 0)
    fix = f"is padding marked with ignore_index = {ignore_index}?"
    require_integers(name, "targets", counted, below=logits_shape[-1], fix=fix)


def check_dloss(name: str, dloss: np.ndarray | float) -> None:
    """Refuse a dloss that is not a single number.

    Raises: ValueError.
    """
    number = isinstance(dloss, (int, float)) or getattr(getattr(dloss, "dtype", None), "kind", "") in tuple("fiuc")
    if not number or np.ndim(dloss) != 0:
        raise shape_error(name, "dloss", "a single number", np.shape(dloss) or repr(dloss), "use 1.0 for a plain loss")
