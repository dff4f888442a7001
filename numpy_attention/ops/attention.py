"""Chapter 6. Scaled dot-product attention

Each query is compared with every key. Its output is the average of the values, weighted by how well the keys match:

    scores  = scale q k^T + bias     (T_q, T_k)    scale = 1 / sqrt(d_k)
    weights = softmax(scores)        row by row    scores of hidden pairs are -inf, so their weights are 0
    y       = weights v              (T_q, d_v)

Why 1 / sqrt(d_k): the dot product of two vectors of independent numbers with mean 0 and variance 1 has variance d_k.
Without the scale, scores grow with the width, the softmax saturates, and its gradient, of order w (1 - w), vanishes.

Backward: take the three lines from the last to the first. Lines one and three are products of two variable factors.
Each factor gets dy times the other factor, transposed, as dx and dw in Chapter 1. Line two is Chapter 3:

    y = weights v                dweights = dy v^T           dv = weights^T dy
    weights = softmax(scores)    dscores  = weights * (dweights - rowsum(dweights * weights))
    scores = scale q k^T + bias  dq = scale dscores k        dk = scale dscores^T q        dbias = dscores

Three things that are easy to get wrong. dk needs dscores transposed: row j of dk is the sum over the queries that
looked at key j. The scale is a factor of dq and of dk, once each. With dropout (Chapter 5) on the weights,
y = dropped v, so dv uses the dropped weights, but the softmax's line uses the weights before dropout.

The backward does not need the mask, because weights is 0 wherever the mask is False. dbias is summed over every axis
along which the bias was broadcast, just as db in Chapter 1 is summed over the rows.

Grouped-query attention shares one key and value head among G query heads. For the keys these G heads are simply more
queries. So we fold them into the query axis, (H_kv, G T_q, d_k), and every line above still holds, including the sums
over all queries in dk and dv.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import (
    broadcasts_to,
    require_bools,
    require_cotangent,
    require_float,
    require_number,
    shape_error,
)
from numpy_attention.ops.dropout import DropoutCache, dropout_backward
from numpy_attention.ops.dropout import dropout as drop  # the argument `dropout` is a rate
from numpy_attention.ops.softmax import SoftmaxCache, softmax, softmax_backward
from numpy_attention.ops.sums import sum_to_shape

OTHER_MASKS = (
    "1 = may look: mask.astype(bool); 1 = hidden: mask_from_blocked(mask); "
    "0 / -inf to be added: mask_from_additive(mask)"
)


class AttentionCache(NamedTuple):
    """Everything the backward needs; plot `weights` to see which keys each query attends to."""

    q: np.ndarray  # (..., H_q, T_q, d_k)
    k: np.ndarray  # (..., H_kv, T_k, d_k)
    v: np.ndarray  # (..., H_kv, T_k, d_v)
    weights: np.ndarray  # (..., H_q, T_q, T_k), rows sum to one, or to zero where a query may look at nothing
    dropped: np.ndarray  # the weights after dropout; the same array when dropout is off
    dropout: DropoutCache
    scale: float
    bias_shape: tuple[int, ...] | None


def scaled_dot_product_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, AttentionCache]:
    """For each query, average the values, weighted by how well their keys match the query.

    Formula: y = softmax(scale q k^T + bias) v, hidden pairs at -inf, scale = 1 / sqrt(d_k) unless given

    Shapes: q (..., H_q, T_q, d_k), k (..., H_kv, T_k, d_k), v (..., H_kv, T_k, d_v) -> y (..., H_q, T_q, d_v).
    Any number of leading axes works, also none: (T, d). In arrays of four or more axes H_kv may be a divisor of H_q.
    mask (bool, True = may look) and bias are broadcastable to (..., H_q, T_q, T_k).
    The weights are `cache.weights`. Dropout acts on the weights, and only if the caller passes a generator.

    Units: scores and bias in nats.

    Raises: ValueError when shapes do not fit; TypeError for a mask that is not bool, or dtypes that differ.

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1; grouped heads: Ainslie et al., GQA (2023).

    >>> q, k, v = np.zeros((1, 2)), np.ones((3, 2)), np.array([[1.0], [2.0], [6.0]])
    >>> y, cache = scaled_dot_product_attention(q, k, v, mask=np.array([True, True, False]))
    >>> y, cache.weights
    (array([[1.5]]), array([[0.5, 0.5, 0. ]]))
    """
    check_attention_arguments("scaled_dot_product_attention", q, k, v, mask, bias, scale)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)  # np.float64 would widen float32
    scores_shape = (*q.shape[:-1], k.shape[-2])

    scores = fold_heads(q * scale, k) @ k.swapaxes(-1, -2)  # (..., H_kv, G T_q, T_k)
    scores = scores.reshape(scores_shape)  # (..., H_q, T_q, T_k)
    if bias is not None:
        scores += bias
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask)
    weights, _ = softmax(scores, out=scores)  # the scores are not needed again
    dropped, dropout_cache = drop(weights, dropout, rng)
    y = fold_heads(dropped, k) @ v  # (..., H_kv, G T_q, d_v)

    bias_shape = None if bias is None else bias.shape
    cache = AttentionCache(q, k, v, weights, dropped, dropout_cache, scale, bias_shape)
    return y.reshape(*q.shape[:-1], v.shape[-1]), cache


def scaled_dot_product_attention_backward(
    dy: np.ndarray, cache: AttentionCache
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Gradients of `scaled_dot_product_attention`; the derivation is at the top of this chapter.

    Shapes: dy (..., H_q, T_q, d_v) -> dq, dk, dv as q, k, v; dbias as bias, or None without one
    """
    q, k, v, weights, dropped, dropout_cache, scale, bias_shape = cache
    expected = (*q.shape[:-1], v.shape[-1])
    require_cotangent("scaled_dot_product_attention_backward", "dy", dy, expected, q.dtype)
    dy_folded = fold_heads(dy, k)  # (..., H_kv, G T_q, d_v)

    # y = dropped @ v
    dv = fold_heads(dropped, k).swapaxes(-1, -2) @ dy_folded  # (..., H_kv, T_k, d_v)
    ddropped = (dy_folded @ v.swapaxes(-1, -2)).reshape(weights.shape)  # (..., H_q, T_q, T_k)

    # dropped = dropout(weights)
    dweights = dropout_backward(ddropped, dropout_cache)

    # weights = softmax(scores)
    dscores = softmax_backward(dweights, SoftmaxCache(weights, axis=-1), out=dweights)  # in place

    # scores = scale * q @ k^T + bias
    dbias = None if bias_shape is None else sum_to_shape(dscores, bias_shape)
    dscores_folded = fold_heads(dscores, k)  # (..., H_kv, G T_q, T_k)
    dq = dscores_folded @ k  # (..., H_kv, G T_q, d_k)
    dq *= scale
    dk = dscores_folded.swapaxes(-1, -2) @ fold_heads(q, k)  # (..., H_kv, T_k, d_k)
    dk *= scale
    return dq.reshape(q.shape), dk, dv, dbias


def fold_heads(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Put the query heads that share a key head one below the other, in one query axis.

    Shapes: x (..., H_q, T_q, n) or (..., H_kv, G, T_q, n), k (..., H_kv, T_k, d_k) -> (..., H_kv, G T_q, n)
    """
    if x.shape[:-2] == k.shape[:-2]:
        return x
    rows = math.prod(x.shape[:-1]) // max(math.prod(k.shape[:-2]), 1)  # G T_q
    return x.reshape(*k.shape[:-2], rows, x.shape[-1])


def check_attention_arguments(
    op: str,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    scale: float | None = None,
) -> None:
    """Check the arguments of both forms of attention (Chapters 6 and 12); each error suggests a likely fix.

    Shapes: four arrays that agree in up to seven sizes

        q (..., H_q,  T_q, d_k)        d_k is shared by q and k: they are multiplied with each other
        k (..., H_kv, T_k, d_k)        T_k is shared by k and v: a value belongs to its key
        v (..., H_kv, T_k, d_v)        the leading axes are the same in all three, but H_kv may divide H_q
        mask, bias                     broadcastable to (..., H_q, T_q, T_k)

    Raises: ValueError for shapes that do not fit; TypeError for other dtypes.
    """
    require_float(op, optional="bias", q=q, k=k, v=v, bias=bias)
    if q.ndim < 2 or q.shape[-1] == 0:
        raise shape_error(op, "q", "(..., T_q, d_k) with d_k at least 1", q.shape)
    if scale is not None:
        require_number(op, "scale", scale, fix="None is 1 / sqrt(d_k)")
    d_k = q.shape[-1]
    if k.ndim != q.ndim or k.shape[-1] != d_k:
        transposed = k.ndim == q.ndim and k.shape[-2] == d_k
        fix = "did you pass k already transposed?" if transposed else "q and k are compared, so they share d_k"
        raise shape_error(op, "k", f"(..., T_k, d_k) with d_k = {d_k} as in q {q.shape}", k.shape, fix)
    if k.shape[-2] == 0:
        raise shape_error(op, "k", "(..., T_k, d_k) with at least one key", k.shape, "to hide keys use a mask")
    if v.ndim != q.ndim or v.shape[:-1] != k.shape[:-1]:
        expected = f"(..., T_k, d_v) with the leading sizes {k.shape[:-1]} of k {k.shape}"
        raise shape_error(op, "v", expected, v.shape, "every key has one value")
    if q.shape[:-2] != k.shape[:-2]:
        _check_grouped_heads(op, q, k)

    scores_shape = (*q.shape[:-1], k.shape[-2])
    if mask is not None:
        require_bools(op, "mask", mask, "boolean, True = may look", OTHER_MASKS, kind="a boolean array")
        _check_broadcast(op, "mask", mask, scores_shape)
    if bias is not None:
        _check_broadcast(op, "bias", bias, scores_shape)


def _check_grouped_heads(op: str, q: np.ndarray, k: np.ndarray) -> None:
    same_lead = q.shape[:-3] == k.shape[:-3]
    if q.ndim >= 4 and same_lead and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0:
        return
    if q.ndim >= 4 and same_lead:
        fix = f"grouped heads need H_q % H_kv == 0, and {q.shape[-3]} is not a multiple of {k.shape[-3]}"
    elif q.ndim == 3:
        fix = "with three axes the first is the batch; grouped heads need (B, H, T, d)"
    else:
        fix = "q and k must come from the same batch"
    raise shape_error(op, "k", f"(..., T_k, d_k) with the leading sizes {q.shape[:-2]} of q {q.shape}", k.shape, fix)


def _check_broadcast(op: str, argument: str, array: np.ndarray, scores_shape: tuple[int, ...]) -> None:
    if broadcasts_to(array.shape, scores_shape):
        return
    fix = "the last two axes are queries and keys"
    if array.ndim > len(scores_shape):
        fix = "it has one axis too many: a padding_mask is for q (B, H, T, d); for q (B, T, d) use its [:, 0]"
    elif array.shape[-2:] == scores_shape[:-3:-1]:
        fix = "did you pass it transposed? rows are queries, columns are keys"
    elif array.ndim == 2 and array.shape == (scores_shape[0], scores_shape[-1]):
        fix = f"for one row of keys per sequence, add the missing axes: {argument}[:, None, None, :]"
    raise shape_error(op, argument, f"broadcastable to (..., T_q, T_k) = {scores_shape}", array.shape, fix)
