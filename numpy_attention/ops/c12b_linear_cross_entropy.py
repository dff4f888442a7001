"""Chapter 12, appendix. The loss of a large vocabulary in little memory

The head of a language model multiplies by a table of V rows, one for each token. The loss is the cross-entropy of
Chapter 11:

    x (N_all, d) --> logits = x table^T (N_all, V) --> loss

With 8 texts of 1,024 tokens and GPT-2's V = 50,257 the logits are 412 million numbers, 1.6 GB in float32. Their softmax
p needs the same memory again, and so does the gradient. But we never need all logits at once: a row of the logits, one
token of the text, is independent of the other rows until their losses are added. So we take a block of rows, compute
and use its logits, and free them before the next block. For the backward we keep one number for each row,

    L_n = logsumexp(logits_n) = m_n + log sum_v exp(logits_nv - m_n)

from which the probabilities can be recomputed, like the weights of attention in this chapter:

    p_nv = exp(logits_nv - L_n)

The backward takes the same blocks and computes their logits a second time. With dlogits = dloss (p - q) / N from
Chapter 11, Chapter 1 gives dx and dtable. The table is w transposed, so the weights of a token are a row of the table:

    dx_n = sum_v dlogits_nv table_v        dtable_v = sum_n dlogits_nv x_n        ->  dx = dlogits table
                                                                                      dtable = dlogits^T x
A row of dx is complete after its block. dtable is a sum over all rows, so every block adds to it. N is the number of
counted positions in all blocks, not in one block: a mean of the block losses would give the positions of unequal
blocks unequal weights.

The price is one more product: four products of size N_all V d instead of three.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_size
from numpy_attention.ops.c01a_sums import as_rows, sum_in_rows
from numpy_attention.ops.c11_losses import check_options, counted_positions, require_single
from numpy_attention.shapes import check_shapes

SHAPES = "x: ... d, table: V d, targets: int<V> ...; V >= 1"


class LinearCrossEntropyCache(NamedTuple):
    """Inputs, options, and one number for each row: nothing of size N_all x V."""

    x: np.ndarray  # (..., d)
    table: np.ndarray  # (V, d)
    L: np.ndarray  # (N_all, 1), log of the sum of exp(logits)
    targets: np.ndarray  # (N_all, 1), 0 at ignored positions
    counted: np.ndarray  # (N_all, 1) of bool
    num_counted: np.ndarray  # N, at least 1, a number in the dtype of L
    label_smoothing: float
    block_size: int
    frozen: bool


def linear_cross_entropy(
    x: np.ndarray, table: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0,
    block_size: int = 512, frozen: bool = False,
) -> tuple[np.ndarray, LinearCrossEntropyCache]:
    """The same loss as `cross_entropy` of x table^T, without all logits in memory at once.

    A `frozen` table does not learn: its gradient is None, which saves a product.

    Formula: loss = mean over counted positions of logsumexp(l) - (1 - s) l_t - (s / V) sum_v l_v, l = x table^T

    Shapes: x (..., d), table (V, d), targets (...) of integers in [0, V) or ignore_index -> loss, a single number

    Units: nats, as a mean per counted token; s is a share in [0, 1]; block_size is the number of rows of x whose logits
    are in memory at the same time.

    Raises: ValueError for a target outside [0, V), shapes that do not fit, a smoothing outside [0, 1] or a block_size
    below 1; TypeError for targets that are not integers, and for dtypes that are not floats or differ.

    Source: Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models (2024), section 4.

    >>> x, table, targets = np.eye(3), np.zeros((8, 3)), np.array([1, 7, -100])
    >>> loss, cache = linear_cross_entropy(x, table, targets, block_size=2)
    >>> float(loss) == float(np.log(8.0))
    True
    """
    op = "linear_cross_entropy"
    fixes = {"table": "one row for each token of the vocabulary"}
    fixes |= check_options(op, ignore_index, label_smoothing, "x")
    check_shapes(op, SHAPES, extra=ignore_index, fixes=fixes, x=x, table=table, targets=targets)
    require_size(op, "block_size", block_size)
    rows = as_rows(x)  # (N_all, d)
    targets, counted, num_counted = counted_positions(targets, ignore_index, like=rows)
    losses = np.empty_like(rows, shape=(len(rows), 1))
    L = np.empty_like(losses)
    for start in range(0, len(rows), block_size):
        block = slice(start, start + block_size)
        logits = rows[block] @ table.T  # (n, V)
        m = logits.max(axis=-1, keepdims=True)  # (n, 1)
        logits -= m  # in place: the memory of one block
        l_t = np.take_along_axis(logits, targets[block], axis=-1)  # (n, 1)
        if label_smoothing:
            l_t = (1.0 - label_smoothing) * l_t + label_smoothing * logits.mean(axis=-1, keepdims=True)
        logsumexp = np.log(sum_in_rows(np.exp(logits, out=logits)))  # (n, 1)
        losses[block] = logsumexp - l_t
        L[block] = m + logsumexp
        del logits  # before the next block
    loss = np.where(counted, losses, 0.0).sum() / num_counted
    cache = LinearCrossEntropyCache(x, table, L, targets, counted, num_counted, label_smoothing, block_size, frozen)
    return loss, cache


def linear_cross_entropy_backward(
    dloss: np.ndarray | float, cache: LinearCrossEntropyCache
) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of `linear_cross_entropy`, block by block: dlogits = dloss (p - q) / N, with p recomputed from L.

    Shapes: dloss a single number -> dx as x, dtable as table; None for a frozen table
    """
    x, table, L, targets, counted, num_counted, s, block_size, frozen = cache
    require_single("linear_cross_entropy_backward", dloss)
    rows, V = as_rows(x), len(table)  # (N_all, d)
    dlosses = (counted * dloss / num_counted).astype(x.dtype)  # (N_all, 1)
    dx = np.empty_like(rows)
    dtable = None if frozen else np.zeros_like(table, order="C")  # same memory order as the products that are added
    for start in range(0, len(rows), block_size):
        block = slice(start, start + block_size)
        logits = rows[block] @ table.T  # (n, V)
        logits -= L[block]
        dlogits = np.exp(logits, out=logits)  # p, in the memory of the logits
        dlogits -= s / V
        dlogits[np.arange(len(dlogits), like=x), targets[block, 0]] -= 1.0 - s  # p - q, as in Chapter 11
        dlogits *= dlosses[block]
        # logits = x @ table.T
        dx[block] = dlogits @ table
        if dtable is not None:
            dtable += dlogits.T @ rows[block]
        del logits, dlogits  # two names of one array, before the next block
    return dx.reshape(x.shape), dtable
