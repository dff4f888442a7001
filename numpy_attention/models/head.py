"""Chapter 21, continued. The head of a model: a score for every token

    x --> @ w --> logits          tied weights: w = table^T, so the score of a token is
    (B, T, d_model)  (B, T, V)    the product of x with the token's own row of the embedding

With tied weights the table is used twice, to read tokens at the bottom of a model and to score them at its top. The
gradient of the second use is Chapter 1 transposed; the first use will add its own to it:

    dx = dlogits table        dtable = dlogits^T x + ...
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from numpy_attention.layers.layer import prefixed
from numpy_attention.layers.linear import Linear
from numpy_attention.models.stack import Stream
from numpy_attention.ops.linear import LinearCache


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


def as_rows(x: np.ndarray) -> np.ndarray:
    """All vectors of x as the rows of one matrix, so that one large product serves instead of B small ones."""
    return x.reshape(-1, x.shape[-1])
