"""Chapter 6. Scaled dot-product attention

Each query is compared with every key. The output for a query is the average of the values, weighted by how well the
keys match this query:

    scores  = scale q k^T + bias     (T_q, T_k)    scale = 1 / sqrt(d_k)
    weights = softmax(scores)        row by row    scores of hidden pairs are -inf, so their weights are 0
    y       = weights v              (T_q, d_v)

The bias is optional. It raises or lowers scores, for example by the distance of the two positions (Chapter 8).

Why 1 / sqrt(d_k): take two vectors of length d_k. If their numbers are independent, with mean 0 and variance 1, then
their dot product has variance d_k. Without the scale, the scores grow with d_k. Then the softmax gives almost all
weight to one key. The gradient that passes the softmax at a weight w is about w (1 - w). If w is near 0 or 1, this is
almost zero.

Backward: take the three lines from the last to the first. Lines one and three are products, and both factors need a
gradient. As in Chapter 1, the gradient of a factor is the gradient of the product times the other factor; the lines
below show which array is transposed. Line two is Chapter 3:

    y = weights v                dweights = dy v^T           dv = weights^T dy
    weights = softmax(scores)    dscores  = weights * (dweights - rowsum(dweights * weights))
    scores = scale q k^T + bias  dq = scale dscores k        dk = scale dscores^T q        dbias = dscores

Three things that are easy to get wrong. dk needs dscores transposed: row j of dk is a sum with one term for each query
that looked at key j. Both dq and dk contain the scale exactly once. Dropout (Chapter 5) acts on the weights: let
`dropped` be the weights after dropout, then y = dropped @ v. So dv uses `dropped`. But the line of the softmax uses
the weights before dropout.

The backward does not need the mask, because the weights are 0 wherever the mask is False. But 0 times NaN is NaN. So
hidden keys and values must be finite numbers: a NaN in a hidden key reaches dq, and a NaN in a hidden value reaches y.
Fill padding with zeros. The op does not do this, because it would copy k and v in every call.

If the forward broadcasts the bias along an axis (repeats it there), dbias is summed over this axis, just as db in
Chapter 1 is summed over the rows.

In the code, `product(a, b)` is `a @ b`, and `transposed_product(a, b, k)` is `a^T @ b`, with as many heads as k. In the
grouped-query attention of Chapter 17 several heads of q share one head of k and v; the appendix explains what these
two functions do then.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_number
from numpy_attention.ops.c01a_sums import sum_to_shape
from numpy_attention.ops.c03_softmax import SoftmaxCache, softmax, softmax_backward
from numpy_attention.ops.c05_dropout import DropoutCache, dropout_backward
from numpy_attention.ops.c05_dropout import dropout as drop  # `drop`, because `dropout` is an argument below (the rate)
from numpy_attention.ops.c06b_shared_heads import product, transposed_product
from numpy_attention.shapes import check_shapes

SHAPES = (
    "q: ... H_q T_q d_k, k: ... H_kv T_k d_k, v: ... H_kv T_k d_v, mask?: bool to ... H_q T_q T_k, "
    "bias?: to ... H_q T_q T_k; H_q = G*H_kv; d_k >= 1; T_k >= 1"
)
NO_HEADS = (  # with fewer than four axes; then no heads share a key head
    "q: ... T_q d_k, k: ... T_k d_k, v: ... T_k d_v, mask?: bool to ... T_q T_k, bias?: to ... T_q T_k; "
    "d_k >= 1; T_k >= 1"
)
FIXES = {
    "k": "q and k are compared, so they share d_k",
    "k.T": "did you pass k already transposed?",
    "v": "every key has one value",
    "T_k >= 1": "to hide keys use a mask",
    "H_q = G*H_kv": "grouped heads need H_q % H_kv == 0",
    "...": "q, k and v must come from the same batch",
    "mask": "rows are queries, columns are keys",
    "mask: axes": "a mask from `padding_mask` has an axis of heads; if q is (B, T, d), without heads, remove it: "
    "mask[:, 0]",
    "mask: bool": 'if 1 means "may look", pass mask.astype(bool); if 1 means "hidden", pass mask_from_blocked(mask); '
    "if the mask holds 0 and -inf, to be added to the scores, pass mask_from_additive(mask)",
}


class AttentionCache(NamedTuple):
    """Everything the backward needs; plot `weights` to see which keys each query attends to."""

    q: np.ndarray  # (..., H_q, T_q, d_k)
    k: np.ndarray  # (..., H_kv, T_k, d_k)
    v: np.ndarray  # (..., H_kv, T_k, d_v)
    weights: np.ndarray  # (..., H_q, T_q, T_k); each row sums to one, or to zero if all keys are hidden
    dropped: np.ndarray  # the weights after dropout; the same array when dropout is off
    dropout: DropoutCache
    scale: float
    bias_shape: tuple[int, ...] | None


def scaled_dot_product_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, bias: np.ndarray | None = None,
    scale: float | None = None, dropout: float = 0.0, rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, AttentionCache]:
    """For each query, average the values, weighted by how well their keys match the query.

    Formula: y = softmax(scale q k^T + bias) v, hidden pairs at -inf, scale = 1 / sqrt(d_k) unless given

    Shapes: q (..., H_q, T_q, d_k), k (..., H_kv, T_k, d_k), v (..., H_kv, T_k, d_v) -> y (..., H_q, T_q, d_v).
    Any number of leading axes works, even zero: (T, d). If q has four or more axes, H_kv may be a divisor of H_q.
    mask (bool, True = may look) and bias are broadcastable to (..., H_q, T_q, T_k).
    The weights are `cache.weights`. Dropout acts on the weights, and only if the caller passes a generator. Hidden keys
    and values must be finite too, because 0 times NaN is NaN.

    Units: scores and bias in nats.

    Raises: ValueError when shapes do not fit; TypeError for a mask that is not bool, or dtypes that differ.

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1; grouped heads: Ainslie et al., GQA (2023).

    >>> q, k, v = np.zeros((1, 2)), np.ones((3, 2)), np.array([[1.0], [2.0], [6.0]])
    >>> y, cache = scaled_dot_product_attention(q, k, v, mask=np.array([True, True, False]))
    >>> y, cache.weights
    (array([[1.5]]), array([[0.5, 0.5, 0. ]]))
    """
    check_attention_arguments("scaled_dot_product_attention", q, k, v, mask, bias, scale)
    # a Python float: with a scale of type np.float64, float32 scores would become float64
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)

    scores = product(q * scale, k.swapaxes(-1, -2))  # (..., H_q, T_q, T_k)
    if bias is not None:
        scores += bias
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask)
    weights, _ = softmax(scores)
    dropped, dropout_cache = drop(weights, dropout, rng)
    y = product(dropped, v)  # (..., H_q, T_q, d_v)

    bias_shape = None if bias is None else bias.shape
    return y, AttentionCache(q, k, v, weights, dropped, dropout_cache, scale, bias_shape)


def scaled_dot_product_attention_backward(
    dy: np.ndarray, cache: AttentionCache
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Gradients of `scaled_dot_product_attention`; the derivation is at the top of this chapter.

    Shapes: dy (..., H_q, T_q, d_v) -> dq, dk, dv with the shapes of q, k, v;
    dbias with the shape of bias, or None if there was no bias
    """
    q, k, v, weights, dropped, dropout_cache, scale, bias_shape = cache
    expected = (*q.shape[:-1], v.shape[-1])
    require_cotangent("scaled_dot_product_attention_backward", "dy", dy, expected, q.dtype)

    # y = dropped @ v
    dv = transposed_product(dropped, dy, k)  # (..., H_kv, T_k, d_v)
    ddropped = product(dy, v.swapaxes(-1, -2))  # (..., H_q, T_q, T_k)

    # dropped = dropout(weights)
    dweights = dropout_backward(ddropped, dropout_cache)

    # weights = softmax(scores)
    dscores = softmax_backward(dweights, SoftmaxCache(weights, axis=-1))

    # scores = scale * q @ k^T + bias
    dbias = None if bias_shape is None else sum_to_shape(dscores, bias_shape)
    dq = product(dscores, k)  # (..., H_q, T_q, d_k)
    dq *= scale
    dk = transposed_product(dscores, q, k)  # (..., H_kv, T_k, d_k)
    dk *= scale
    return dq, dk, dv, dbias


def check_attention_arguments(
    op: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None,
    bias: np.ndarray | None = None, scale: float | None = None,
) -> None:
    """Check the arguments of all forms of attention; each error suggests a likely fix."""
    arrays: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": mask, "bias": bias}
    heads = getattr(q, "ndim", 0) >= 4
    fixes = FIXES if heads else {**FIXES, "...": f"{FIXES['...']}; grouped heads need four axes, (B, H, T, d)"}
    check_shapes(op, SHAPES if heads else NO_HEADS, fixes=fixes, **arrays)
    if scale is not None:
        require_number(op, "scale", scale, fix="None means 1 / sqrt(d_k)")
