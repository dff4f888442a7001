"""Chapter 21, continued. The head of a model: a score for every token, and the loss of the scores

    x --> @ w --> logits          tied weights: w = table^T, so the score of a token is
    (B, T, d_model)  (B, T, V)    the product of x with the token's own row of the embedding

With tied weights the table is used twice, to read tokens at the bottom of a model and to score them at its top. The
gradient of the second use is Chapter 1 transposed; the first use will add its own to it:

    dx = dlogits table        dtable = dlogits^T x + ...

In training nobody looks at the logits: they are there for the loss. Where they are many, the loss is taken from x
without them, row by row (Chapter 12, appendix), and so are dx and dtable.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent
from numpy_attention.layers.layer import prefixed
from numpy_attention.layers.linear import Linear
from numpy_attention.models.stack import Stream
from numpy_attention.ops.linear import LinearCache
from numpy_attention.ops.linear_cross_entropy import (
    LinearCrossEntropyCache,
    linear_cross_entropy,
    linear_cross_entropy_backward,
)
from numpy_attention.ops.losses import CrossEntropyCache, cross_entropy
from numpy_attention.ops.sums import as_rows

# The logits of a loss that are held at a time: 128 MiB in float32. Measured on one core with a table of 50,257 x 768:
# head and loss, forward and backward, and the most memory beyond their inputs, of which dtable is 147 MiB.
#
#       rows     all logits            in blocks (of 128, 512, 667 rows)
#        128     0.36 s,   221 MiB     0.51 s,   319 MiB
#      2,048     7.4 s,  1,331 MiB     8.5 s,    399 MiB
#      8,192     32 s,   4,916 MiB     34 s,     473 MiB
#
# Few rows gain nothing: what a block adds to dtable is as large as dtable. Many pay a tenth for the product that is
# made twice, since arrays of gigabytes cost time as well.
LOGITS_AT_ONCE = 2**25
LossOfHead = CrossEntropyCache | LinearCrossEntropyCache  # of all logits, or without them


class HeadCache(NamedTuple):
    """What backward needs of a head."""

    x: np.ndarray  # (B, T, d_model)
    linear: LinearCache | None  # None with tied weights


def run_head(x: np.ndarray, table: np.ndarray, head: Linear | None) -> tuple[np.ndarray, HeadCache]:
    """The logits (B, T, V), by the head where there is one, by the table (V, d_model) otherwise."""
    if head is not None:
        logits, linear = head.forward(x)  # (B, T, V)
        return logits, HeadCache(x, linear)
    logits = as_rows(x) @ table.T  # (B T, V)
    return logits.reshape(*x.shape[:-1], len(table)), HeadCache(x, None)


def head_gradients(
    dlogits: np.ndarray, cache: HeadCache, table: np.ndarray, head: Linear | None, frozen: bool = False
) -> Stream:
    """Yield the gradients of a head that is no table; return dx, and dtable for the embedding to add to.

    A `frozen` table does not learn (Chapter 37), nor does a head that is frozen: dtable is None, no gradient is
    yielded, and with it a product as large as that of the forward is saved.
    """
    require_cotangent("head", "dlogits", dlogits, (*cache.x.shape[:-1], len(table)), cache.x.dtype)
    if head is None or cache.linear is None:
        # logits = x @ table.T
        dx = as_rows(dlogits) @ table  # (B T, d_model)
        dtable = None if frozen else as_rows(dlogits).T @ as_rows(cache.x)  # (V, d_model)
        return dx.reshape(cache.x.shape), dtable
    # logits = head(x)
    if head.frozen:
        dx = (as_rows(dlogits) @ head.w.T).reshape(cache.x.shape)  # (B, T, d_model)
    else:
        dx, grads = head.backward(dlogits, cache.linear)
        yield from prefixed("head", grads).items()
    return dx, None if frozen else np.zeros_like(table)


def token_vectors(table: np.ndarray, head: Linear | None) -> np.ndarray:
    """The vectors (V, d_model) that x is multiplied with, one for each token: a head has no bias."""
    return table if head is None else head.w.T


def run_loss(
    x: np.ndarray,
    table: np.ndarray,
    head: Linear | None,
    targets: np.ndarray,
    logits_at_once: int,
    label_smoothing: float = 0.0,
    frozen: bool = False,
) -> tuple[np.ndarray, HeadCache, LossOfHead]:
    """The loss of the head's scores, with no more of them in memory at a time than `logits_at_once`.

    Shapes: x (B, T, d_model), targets (B, T) -> loss, a single number; `frozen` as in `head_gradients`.
    """
    vectors = token_vectors(table, head)  # (V, d_model)
    V = len(vectors)
    if len(as_rows(x)) * V <= logits_at_once:
        logits, cache = run_head(x, table, head)  # (B, T, V)
        loss, of_loss = cross_entropy(logits, targets, label_smoothing=label_smoothing)
        return loss, cache, of_loss
    rows, without_gradient = max(1, logits_at_once // V), bool(frozen if head is None else head.frozen)
    options: dict[str, Any] = {"label_smoothing": label_smoothing, "block_size": rows, "frozen": without_gradient}
    loss, by_rows = linear_cross_entropy(x, vectors, targets, **options)
    return loss, HeadCache(x, None if head is None else LinearCache(x, head.w, has_bias=False)), by_rows


def loss_gradients(
    dloss: float, cache: LinearCrossEntropyCache, table: np.ndarray, head: Linear | None, frozen: bool = False
) -> Stream:
    """`head_gradients` where no logits were made: those of the loss itself."""
    # loss = linear_cross_entropy(x, vectors, targets)
    dx, dvectors = linear_cross_entropy_backward(dloss, cache)  # (B, T, d_model), (V, d_model)
    if head is None:
        return dx, dvectors
    # vectors = w.T
    if dvectors is not None:
        yield "head.w", dvectors.T.copy()
    return dx, None if frozen else np.zeros_like(table)
