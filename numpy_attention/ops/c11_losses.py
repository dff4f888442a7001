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

With class weights w, each share of the target is multiplied by the weight of its class, q_v -> w_v q_v, and N is the
sum of the weights w_t of the targets. The shares then sum to Q instead of 1:

    loss = Q logsumexp(x) - sum_v w_v q_v x_v        dx_v = Q p_v - w_v q_v        Q = sum_v w_v q_v

Without smoothing, Q = w_t: the loss of a position is multiplied by the weight of its target. With reduction="sum" the
loss is not divided by N. With reduction="none" each position has a loss and a dloss.

Some models return log-probabilities y = log p (the log-softmax of Chapter 3). Then the loss of a position is -w_t y_t,
and its gradient is -w_t [v = t]: the gradient above with p = 0. The backward of the log-softmax adds the p.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import (
    require_choice,
    require_cotangent,
    require_float,
    require_number,
    shape_error,
)
from numpy_attention.ops.c01a_sums import as_rows, sum_in_rows
from numpy_attention.shapes import check_shapes, not_ignored

SHAPES = {
    "cross_entropy": "logits: ... V, targets: int<V> ...; V >= 1",
    "negative_log_likelihood": "log_probs: ... V, targets: int<V> ...; V >= 1",
}


class CrossEntropyCache(NamedTuple):
    """The probabilities, the targets and options, and the number of counted positions."""

    p: np.ndarray  # (N_all, V), softmax of the logits
    targets: np.ndarray  # (N_all,), 0 at ignored positions
    counted: np.ndarray  # (N_all, 1) of bool
    num_counted: np.ndarray  # N, or 1 if the loss is not a mean; a number in the dtype of p
    label_smoothing: float
    class_weights: np.ndarray | None  # (V,)
    logits: np.ndarray  # backward needs only the shape and the dtype
    loss_shape: tuple[int, ...]


def cross_entropy(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0,
    class_weights: np.ndarray | None = None, reduction: str = "mean",
) -> tuple[np.ndarray, CrossEntropyCache]:
    """The mean negative log-likelihood of the targets.

    Formula: loss = mean over counted positions of logsumexp(x) - (1 - s) x_t - (s / V) sum_v x_v, with the label
    smoothing s; with class weights w, the sum over them of w_t (1 - s) (logsumexp(x) - x_t) +
    (s / V) sum_v w_v (logsumexp(x) - x_v), divided by the sum of w_t

    Shapes: logits (..., V), targets (...) of integers in [0, V) or ignore_index, class_weights (V,) -> a single number,
    or (...) for reduction="none"

    Units: nats (natural logarithms), the mean over the counted tokens; s is a share in [0, 1].

    Raises: ValueError for a target outside [0, V), shapes that do not fit, a smoothing outside [0, 1], or an unknown
    reduction; TypeError for targets that are not integers.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 6.2.2.3; smoothing: Szegedy et al.,
    Rethinking the Inception Architecture (2016), section 7; smoothing with class weights: as in PyTorch.

    >>> float(cross_entropy(np.zeros((3, 8)), np.array([1, 7, -100]))[0]) == float(np.log(8.0))
    True
    """
    op = "cross_entropy"
    check_options(op, ignore_index, label_smoothing, reduction)
    fixes = target_fixes(ignore_index, "logits")
    check_shapes(op, SHAPES[op], extra=ignore_index, fixes=fixes, logits=logits, targets=targets)
    x = as_rows(logits)  # (N_all, V)
    w = _like(op, class_weights, logits=logits)
    safe_targets, counted, num_counted = counted_positions(targets, ignore_index, x, w, reduction)
    losses, p, _, total = negative_log_likelihood_rows(x, safe_targets, label_smoothing, class_weights=w)
    p /= total
    loss = reduced(losses, counted, num_counted, targets.shape if reduction == "none" else ())
    cache = CrossEntropyCache(p, safe_targets[:, 0], counted, num_counted, label_smoothing, w, logits, loss.shape)
    return loss.astype(logits.dtype), cache


def cross_entropy_backward(dloss: np.ndarray | float, cache: CrossEntropyCache) -> np.ndarray:
    """Gradient of `cross_entropy`: dlogits = dloss (Q p - w q) / N at counted positions, zero elsewhere.

    Shapes: dloss a single number, or (...) for reduction="none" -> dlogits as logits
    """
    p, targets, counted, num_counted, s, w, logits, loss_shape = cache
    dloss = checked_dloss("cross_entropy_backward", dloss, loss_shape, logits.dtype)
    dx = gradient_in_rows(p.copy(), targets, counted, num_counted, s, dloss, w)  # (N_all, V)
    return dx.reshape(logits.shape)


def negative_log_likelihood(
    log_probs: np.ndarray, targets: np.ndarray, ignore_index: int = -100, class_weights: np.ndarray | None = None,
    reduction: str = "mean",
) -> tuple[np.ndarray, CrossEntropyCache]:
    """The cross-entropy of given log-probabilities y, from `log_softmax`.

    Formula: loss = sum(-w_t y_t) / N, with the class weights w (1 without them)

    Shapes: log_probs (..., V), targets (...), class_weights (V,) -> as `cross_entropy`

    Raises: ValueError and TypeError, as `cross_entropy`.

    Source: Goodfellow, Bengio, Courville, Deep Learning (2016), section 5.5.

    >>> float(negative_log_likelihood(np.array([[-1.0, -3.0]]), np.array([1]))[0])
    3.0
    """
    op = "negative_log_likelihood"
    check_options(op, ignore_index, 0.0, reduction)
    fixes = target_fixes(ignore_index, "log_probs")
    check_shapes(op, SHAPES[op], extra=ignore_index, fixes=fixes, log_probs=log_probs, targets=targets)
    y = as_rows(log_probs)  # (N_all, V)
    w = _like(op, class_weights, log_probs=log_probs)
    safe_targets, counted, num_counted = counted_positions(targets, ignore_index, y, w, reduction)
    losses = -np.take_along_axis(y, safe_targets, axis=-1)  # (N_all, 1)
    if w is not None:
        losses = _weighted(losses, w[safe_targets])
    loss = reduced(losses, counted, num_counted, targets.shape if reduction == "none" else ())
    p = np.zeros_like(y)  # without a logsumexp in the loss, its gradient has no p
    cache = CrossEntropyCache(p, safe_targets[:, 0], counted, num_counted, 0.0, w, log_probs, loss.shape)
    return loss.astype(log_probs.dtype), cache


def negative_log_likelihood_backward(dloss: np.ndarray | float, cache: CrossEntropyCache) -> np.ndarray:
    """Gradient of `negative_log_likelihood`: dlog_probs = -dloss w_t / N at counted targets, zero elsewhere.

    Shapes: dloss as the loss -> dlog_probs as log_probs
    """
    checked_dloss("negative_log_likelihood_backward", dloss, cache.loss_shape, cache.logits.dtype)
    # loss = sum(-w_t y_t) / N
    return cross_entropy_backward(dloss, cache)  # p is 0 in the cache


def counted_positions(
    targets: np.ndarray, ignore_index: int, like: np.ndarray, class_weights: np.ndarray | None = None,
    reduction: str = "mean",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return valid targets, True for each position that counts, and N, in the dtype of `like`.

    N is the number of positions that count, or the sum of the class weights of their targets; but 1 if the loss is not
    a mean, or if nothing counts.

    Shapes: targets (...) -> (N_all, 1), (N_all, 1), ()
    """
    targets = np.asarray(targets, like=like).reshape(-1, 1)  # copied, if the logits are on a GPU
    counted = not_ignored(targets, ignore_index)
    safe_targets = np.where(counted, targets, 0)  # an ignored position may get any valid token
    total = (counted if class_weights is None else counted * class_weights[safe_targets]).sum()
    num_counted = np.where((total == 0) | (reduction != "mean"), 1, total)
    return safe_targets, counted, num_counted.astype(like.dtype)


def negative_log_likelihood_rows(
    x: np.ndarray, targets: np.ndarray, label_smoothing: float, out: np.ndarray | None = None,
    class_weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The loss of every row, Q logsumexp(x) - sum_v w_v q_v x_v; also exp(x - m), m, and the row sums of exp(x - m).

    Shapes: x (N, V), targets (N, 1) -> (N, 1), (N, V) in `out`, (N, 1), (N, 1)
    """
    m = x.max(axis=-1, keepdims=True)  # (N, 1)
    shifted = np.subtract(x, m, out=out)  # (N, V)
    picked = np.take_along_axis(shifted, targets, axis=-1)  # (N, 1)
    Q = 1.0  # without class weights
    if class_weights is not None:
        w_t = class_weights[targets]  # (N, 1)
        picked = _weighted(picked, w_t)
        Q = (1.0 - label_smoothing) * w_t + label_smoothing * class_weights.mean()  # (N, 1)
    if label_smoothing:
        every = shifted if class_weights is None else class_weights * shifted  # (N, V)
        picked = (1.0 - label_smoothing) * picked + label_smoothing * every.mean(axis=-1, keepdims=True)
    e = np.exp(shifted, out=shifted)
    total = sum_in_rows(e)  # (N, 1)
    return Q * np.log(total) - picked, e, m, total  # the maximum m cancels


def reduced(
    losses: np.ndarray, counted: np.ndarray, num_counted: np.ndarray, loss_shape: tuple[int, ...] = ()
) -> np.ndarray:
    """The sum of the losses of the counted positions, divided by N; or all losses, in the given shape.

    Shapes: losses (N_all, 1), counted (N_all, 1) -> () or loss_shape
    """
    losses = np.where(counted, losses, 0.0)  # not a product: an ignored loss may be infinite, and 0 times inf is NaN
    return losses.reshape(loss_shape) if loss_shape else losses.sum() / num_counted


def gradient_in_rows(
    p: np.ndarray, targets: np.ndarray, counted: np.ndarray, num_counted: np.ndarray, label_smoothing: float,
    dloss: np.ndarray | float, class_weights: np.ndarray | None = None,
) -> np.ndarray:
    """dloss (Q p - w q) / N at counted positions, zero elsewhere; overwrites p.

    If the caller passes the rows in several blocks, N is the number of counted rows in all blocks together.

    Shapes: p (N, V), targets (N,), counted (N, 1) -> (N, V)
    """
    # loss = mean(Q logsumexp(x) - (1 - s) w_t x_t - (s / V) sum w x), so dx = Q p - w q
    dx, s = p, label_smoothing
    w: Any = 1.0
    w_t: Any = 1.0
    if class_weights is not None:
        w, w_t = class_weights, class_weights[targets]  # (V,), (N,)
        dx *= ((1.0 - s) * w_t + s * w.mean())[:, None]  # Q
    if s:
        dx -= s / dx.shape[-1] * w
    dx[np.arange(len(targets), like=targets), targets] -= (1.0 - s) * w_t  # one index for each row
    dx *= (counted * dloss / num_counted).astype(dx.dtype)
    return dx


def check_options(op: str, ignore_index: int, label_smoothing: float, reduction: str = "mean") -> None:
    """Refuse invalid options of a loss."""
    require_number(op, "label_smoothing", label_smoothing, at_least=0, at_most=1)
    require_number(op, "ignore_index", ignore_index, whole=True)
    require_choice(op, "reduction", reduction, ("mean", "sum", "none"))


def target_fixes(ignore_index: int, logits: str) -> dict[str, str]:
    """Hints for wrong arguments of a loss; the last one is for targets that are not token ids."""
    return {
        "table": "one row for each token of the vocabulary",
        "targets": f"targets are ids, one for each row of {logits}, not one-hot vectors",
        "V": f"is padding marked with ignore_index = {ignore_index}?",
    }


def _like(op: str, class_weights: np.ndarray | None, **logits: Any) -> np.ndarray | None:
    """The class weights on the device and in the dtype of the logits, the only other argument."""
    if class_weights is None:
        return None
    require_float(op, class_weights=class_weights)
    [(name, x)] = logits.items()
    w = np.asarray(class_weights, like=x).astype(x.dtype)
    fixes = {"class_weights": "one weight for each class"}
    check_shapes(op, f"{name}: ... V, class_weights: V", fixes=fixes, class_weights=w, **logits)
    return w


def _weighted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """w x, and 0 where w is 0, even if x is infinite."""
    return w * np.where(w == 0, 0.0, x)


def checked_dloss(name: str, dloss: Any, loss_shape: tuple[int, ...] = (), dtype: object = None) -> Any:
    """The gradient of the loss, as a column (N_all, 1) if each position has a loss; refuses other shapes."""
    if loss_shape:
        require_cotangent(name, "dloss", dloss, loss_shape, dtype)
        return dloss.reshape(-1, 1)
    number = isinstance(dloss, (int, float)) or getattr(getattr(dloss, "dtype", None), "kind", "") in tuple("fiuc")
    if not number or np.ndim(dloss) != 0:
        raise shape_error(name, "dloss", "a single number", np.shape(dloss) or repr(dloss), "use 1.0 for a plain loss")
    return dloss
