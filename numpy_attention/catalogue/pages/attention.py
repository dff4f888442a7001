"""Scaled dot-product attention (Chapter 6): masks, biases, scales, dropout, grouped heads, very large scores."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.catalogue.entry import Array, Options, generator, op_entry, times
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz, Try
from numpy_attention.catalogue.mistake import backward_of, op_of, stands_in_for
from numpy_attention.catalogue.pages.softmax import plain_softmax
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.attention import (
    AttentionCache,
    fold_heads,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from numpy_attention.ops.dropout import dropout_backward
from numpy_attention.ops.sums import sum_to_shape

CHAPTER = 6

ATTENTION = "scaled_dot_product_attention"
QKV = "q: B H T_q d_k, k: B H T_k d_k, v: B H T_k d_v"
ONE_HEAD = "q: T_q d_k, k: T_k d_k, v: T_k d_v"
GROUPED = "q: B H_q T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v"
GROUPS = "; H_q = G*H_kv"
REFUSED = "k+0 k-1 v+2 k.T q:float32 q:int64 q[list]"

_entry = partial(op_entry, ATTENTION)


def _all_keys_hidden(inputs: Arrays, sizes: Sizes) -> Arrays:
    inputs["mask"][...] = False
    return inputs


def dropped(rate: float) -> Options:
    """Options that turn dropout on, with a new generator for each case."""
    return lambda _: {"dropout": rate, "rng": generator()}


ENTRIES = (
    _entry(QKV, "T_q and T_k differ", wrong=REFUSED),
    _entry(ONE_HEAD, "no leading axes", wrong="k-1 v+0"),
    _entry(
        "q: B T_q d_k, k: B T_k d_k, v: B T_k d_v, mask: bool B T_q T_k", "one head, mask",
        wrong="mask+1 mask:float64"
    ),
    _entry(QKV + ", mask: bool T_q T_k", "mask", wrong="mask+0 mask:int64"),
    _entry(QKV + ", mask: bool B 1 1 T_k", "padding mask"),
    _entry(QKV + ", mask: bool B H T_q T_k", "mask of each head"),
    _entry(QKV + ", mask: bool T_q T_k", "all keys hidden", prepare=_all_keys_hidden),
    _entry(QKV + ", bias: B H T_q T_k", "bias", wrong="bias+2 bias:float32"),
    _entry(QKV + ", bias: H 1 T_k", "bias that is broadcast", wrong="bias+2"),
    _entry(QKV + ", mask: bool T_q T_k, bias: H T_q T_k", "mask and bias"),
    _entry(QKV + ", bias: B 1 T_q T_k, mask: bool B 1 T_q T_k", "both, and a scale", options={"scale": 0.7}),
    _entry(QKV, "scale", options={"scale": 0.3}),
    _entry(QKV, "saturated", prepare=times("q", 40.0), tolerance=1e-5),
    _entry(QKV, "dropout", options=dropped(0.4)),
    _entry(QKV + ", mask: bool B 1 T_q T_k, bias: T_q T_k", "mask, bias and dropout", options=dropped(0.3)),
    _entry(GROUPED + GROUPS, "grouped heads", at_least={"G": 2, "H_kv": 2}, wrong="k+1 v+1 q:float32"),
    _entry(GROUPED + ", mask: bool B 1 T_q T_k, bias: H_q T_q T_k" + GROUPS, "grouped heads, mask and bias"),
    _entry(GROUPED + ", mask: bool B H_q T_q T_k" + GROUPS, "grouped heads, mask and dropout", options=dropped(0.3)),
    _entry(QKV + ", mask: bool T_q T_k, bias: H T_q T_k", "softcap, mask and bias", options={"softcap": 1.5}),
    _entry(QKV + ", sink: H", "sink", wrong="sink+0 sink:float32 sink[more]"),
    _entry(QKV + ", mask: bool T_q T_k, sink: H", "sink, all keys hidden", prepare=_all_keys_hidden),
    _entry(
        GROUPED + ", mask: bool B 1 T_q T_k, bias: H_q T_q T_k, sink: H_q" + GROUPS, "all at once",
        options=lambda _: {"softcap": 1.5, "dropout": 0.3, "rng": generator()},
    ),
)


def plain_attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, bias: Array | None = None, scale: float | None = None,
    causal: bool = False, window: int | None = None, slopes: Array | None = None, dropout: float = 0.0,
    softcap: float | None = None, sink: Array | None = None, ahead: int | None = None, **_: Any,
) -> Array | None:
    """Computes one query at a time, over the visible keys of this query; returns None with dropout."""
    if dropout:
        return None
    T_q, T_k = q.shape[-2], k.shape[-2]
    if k.ndim > 2 and k.shape[-3] != q.shape[-3]:  # grouped heads
        k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    shape = (*q.shape[:-1], T_k)
    seen = np.broadcast_to(np.ones((), bool) if mask is None else mask, shape)
    added = np.broadcast_to(np.zeros(()) if bias is None else bias, shape)
    if causal or ahead is not None:
        seen = seen & np.tri(T_q, T_k, T_k - T_q + (ahead or 0), dtype=bool)
    if window is not None:
        seen = seen & ~np.tri(T_q, T_k, T_k - T_q - window, dtype=bool)
    if slopes is not None:
        added = added - slopes[:, None, None] * abs(np.subtract.outer(np.arange(T_k - T_q, T_k), np.arange(T_k)))
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    for place in np.ndindex(q.shape[:-1]):
        *lead, _i = place
        keys = np.flatnonzero(seen[place])
        if len(keys):
            scores = k[tuple(lead)][keys] @ q[place] * (q.shape[-1] ** -0.5 if scale is None else scale)
            scores = (scores if softcap is None else softcap * np.tanh(scores / softcap)) + added[place][keys]
            scores = np.append(scores, -np.inf if sink is None else sink[lead[-1]])  # one more key, with a value of 0
            y[place] = plain_softmax(scores)[:-1] @ v[tuple(lead)][keys]
    return y


PLAIN = {ATTENTION: plain_attention}


@backward_of(ATTENTION, diagnosis="in place of `fold_heads(dropped, k)`")
def dv_before_dropout(dy: Array, cache: AttentionCache) -> Any:
    """dv uses the weights before dropout, but the forward computes the output from the weights after dropout.

    Hides: dropout is off in the test.
    """
    return scaled_dot_product_attention_backward(dy, cache._replace(dropped=cache.weights))


@backward_of(ATTENTION, diagnosis="is the scale 1/sqrt(d) left out")
def scale_left_out(dy: Array, cache: AttentionCache) -> Any:
    """The factor 1/sqrt(d_k) of the scores is missing in dq and dk.

    Hides: the direction is right, and the learning rate absorbs the factor.
    """
    dq, dk, *others = scaled_dot_product_attention_backward(dy, cache)
    return dq / cache.scale, dk / cache.scale, *others


@backward_of(ATTENTION, diagnosis="is the scale 1/sqrt(d) applied twice")
def scale_applied_twice(dy: Array, cache: AttentionCache) -> Any:
    """The factor 1/sqrt(d_k) is applied to dscores, and again to dq and dk.

    Hides: the direction is right, and the learning rate absorbs the factor.
    """
    dq, dk, *others = scaled_dot_product_attention_backward(dy, cache)
    return dq * cache.scale, dk * cache.scale, *others


def _without_the_mask(dy: Array, cache: tuple[AttentionCache, Array]) -> Any:
    inner, unmasked = cache
    dq, dk, _, *others = scaled_dot_product_attention_backward(dy, inner._replace(weights=unmasked))
    return dq, dk, scaled_dot_product_attention_backward(dy, inner)[2], *others


@op_of(ATTENTION, _without_the_mask, diagnosis="the gradient leaks through elements that mask hides")
def mask_in_the_forward_only(q: Array, k: Array, v: Array, mask: Any = None, bias: Any = None, **options: Any) -> Any:
    """The backward recomputes the weights without the mask, so gradient leaks into hidden keys.

    Hides: the test has no mask, or a mask of all True.
    """
    y, cache = scaled_dot_product_attention(q, k, v, mask, bias, **options)
    return y, (cache, scaled_dot_product_attention(q, k, v, None, bias, **options)[1].weights)


@backward_of(ATTENTION, diagnosis="a factor that should be transposed")
def dk_not_transposed(dy: Array, cache: AttentionCache) -> Any:
    """dk = dscores q, but row j of dk must sum over the queries that used key j: dscores^T q.

    Hides: the shapes agree if T_q = T_k.
    """
    dq, _, *others = scaled_dot_product_attention_backward(dy, cache)
    q, k, v, weights, *_ = cache
    dweights = (fold_heads(dy, k) @ v.swapaxes(-1, -2)).reshape(weights.shape)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    return dq, fold_heads(dscores, k) @ fold_heads(q, k) * cache.scale, *others


@backward_of(ATTENTION, diagnosis="a factor that should be transposed")
def dv_not_transposed(dy: Array, cache: AttentionCache) -> Any:
    """dv = weights dy, but the gradient of a value must sum over the queries that used it: weights^T dy.

    Hides: the shapes agree if T_q = T_k.
    """
    dq, dk, _, *others = scaled_dot_product_attention_backward(dy, cache)
    return dq, dk, fold_heads(cache.dropped, cache.k) @ fold_heads(dy, cache.k), *others


@backward_of(ATTENTION, diagnosis="a sum along the wrong axis")
def softmax_of_the_columns(dy: Array, cache: AttentionCache) -> Any:
    """The sum in the softmax's backward runs over the queries instead of the keys.

    Hides: all shapes agree, and each term has the right size.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: weights * (
        dweights - (dweights * weights).sum(axis=-2, keepdims=True)))


@backward_of(ATTENTION, diagnosis="uses only the first row of dy")
def broadcast_bias_not_summed(dy: Array, cache: AttentionCache) -> Any:
    """A bias shared by all sequences of the batch gets only the gradient of the first sequence.

    Hides: right for a batch of one, or for a bias of full shape.
    """
    dq, dk, dv, dbias, *dsink = scaled_dot_product_attention_backward(dy, cache)
    if dbias is None:
        return dq, dk, dv, None, *dsink
    full = scaled_dot_product_attention_backward(dy, cache._replace(bias_shape=cache.weights.shape))[3]
    assert full is not None
    first = full[tuple(slice(size) for size in (1,) * (full.ndim - dbias.ndim) + dbias.shape)]
    return dq, dk, dv, first.reshape(dbias.shape), *dsink


@backward_of(ATTENTION, diagnosis="along axis 1 of dy: is a sum over this axis, or over groups along it, missing")
def first_head_of_the_group(dy: Array, cache: AttentionCache) -> Any:
    """Several query heads share a key head, but dk and dv come only from the first query head.

    Hides: right if every query head has its own keys.
    """
    dq, dk, dv, dbias, *dsink = scaled_dot_product_attention_backward(dy, cache)
    q, k = cache.q, cache.k
    if q.shape[:-2] == k.shape[:-2]:
        return dq, dk, dv, dbias, *dsink
    first = np.zeros_like(dy)
    group = q.shape[-3] // k.shape[-3]
    first[..., ::group, :, :] = dy[..., ::group, :, :]
    _, dk, dv, *_ = scaled_dot_product_attention_backward(first, cache)
    return dq, dk, dv, dbias, *dsink


@backward_of(ATTENTION)
def scale_upside_down(dy: Array, cache: AttentionCache) -> Any:
    """dq and dk are divided by the scale 1/sqrt(d_k) instead of multiplied by it.

    Hides: the direction is right; for d_k = 1 everything is right.
    """
    dq, dk, *others = scaled_dot_product_attention_backward(dy, cache)
    return dq / cache.scale**2, dk / cache.scale**2, *others


def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None,
    *, hidden: float = -np.inf, softmax: Callable[[Array], Array] = lambda scores: ops.softmax(scores)[0],
) -> tuple[Array, Array]:
    """Attention and its weights; `hidden` is the score of hidden keys."""
    scores = np.asarray(q @ k.swapaxes(-1, -2) / np.asarray(np.sqrt(q.shape[-1]), q.dtype))
    weights = softmax(scores if mask is None else np.where(mask, scores, hidden))
    return weights @ v, weights


@stands_in_for("attention")
def scores_not_scaled(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The scores are not divided by sqrt(d_k), so they grow with d_k, and nearly all weight goes to a single key.

    Hides: shapes and sums are right; the model trains, but wider heads train more slowly.
    """
    return attention(q * np.asarray(np.sqrt(q.shape[-1]), q.dtype), k, v, mask)


@stands_in_for("attention")
def scores_divided_by_d_k(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The scores are divided by d_k instead of sqrt(d_k).

    Hides: shapes and sums are right; only the weights of a query differ too little.
    """
    return attention(q / np.asarray(np.sqrt(q.shape[-1]), q.dtype), k, v, mask)


@stands_in_for("attention")
def softmax_over_the_queries(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The softmax runs over the queries, but the weights of each query must sum to one over the keys, the last axis.

    Hides: the shapes agree.
    """
    return attention(q, k, v, mask, softmax=partial(plain_softmax, axis=-2))


@stands_in_for("attention")
def softmax_over_the_whole_matrix(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """One softmax over all scores: all weights together sum to one, but the weights of each query must sum to one.

    Hides: right for a single query; every shape is right, and all weights are positive.
    """
    return attention(q, k, v, mask, softmax=lambda scores: plain_softmax(scores.reshape(-1)).reshape(scores.shape))


@stands_in_for("attention")
def mask_ignored(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The mask is not used; as tutorial 5 shows, a hidden key must get the score -inf.

    Hides: right if every key is visible.
    """
    return attention(q, k, v)


@stands_in_for("attention")
def mask_upside_down(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """True hides a key, but in this package True means visible and False means hidden.

    Hides: right for the masks of some other libraries, and without a mask.
    """
    return attention(q, k, v, None if mask is None else ~mask)


@stands_in_for("attention")
def mask_after_the_softmax(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """Hidden weights are set to zero after the softmax, so the other weights do not sum to one: mask the scores.

    Hides: hidden keys get weight zero, which is right; without a mask everything is right.
    """
    _, weights = attention(q, k, v)
    weights = weights if mask is None else weights * mask
    return weights @ v, weights


@stands_in_for("attention")
def hidden_scores_of_zero(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """Hidden scores are set to zero, but exp(0) = 1 is a large weight: hidden scores must be -inf.

    Hides: right without a mask.
    """
    return attention(q, k, v, mask, hidden=0.0)


@stands_in_for("attention")
def equal_weights_for_hidden_keys(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """Hidden scores are -1e9, so a query whose keys are all hidden gets equal weights; its weights must be zero.

    Hides: right for every query with a visible key.
    """
    return attention(q, k, v, mask, hidden=-1e9)


@stands_in_for("attention")
def nan_for_a_fully_masked_query(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """If all keys of a query are hidden, exp(-inf + inf) gives NaN; the weights of this query must be zero.

    Hides: right for every query with a visible key.
    """
    return attention(q, k, v, mask, softmax=plain_softmax)


@stands_in_for("attention")
def largest_not_subtracted(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """For a score of 1000, exp is infinite, and inf / inf is NaN: first subtract the largest score of the row.

    Hides: right while scores are small, as before training.
    """

    def softmax(scores: Array) -> Array:
        e = np.exp(scores)
        total = e.sum(axis=-1, keepdims=True)
        return np.asarray(e / np.where(total == 0, 1, total))

    return attention(q, k, v, mask, softmax=softmax)


def _with_dscores(dy: Array, cache: AttentionCache, dscores_of: Callable[[Array, Array], Array]) -> Any:
    q, k, v, weights, *_ = cache
    ddropped = (fold_heads(dy, k) @ v.swapaxes(-1, -2)).reshape(weights.shape)
    full = dscores_of(dropout_backward(ddropped, cache.dropout), weights)
    dscores = fold_heads(full, k)
    dq, dk = dscores @ k * cache.scale, dscores.swapaxes(-1, -2) @ fold_heads(q, k) * cache.scale
    _, _, dv, dbias, *dsink = scaled_dot_product_attention_backward(dy, cache)
    return dq.reshape(q.shape), dk, dv, None if dbias is None else sum_to_shape(full, dbias.shape), *dsink


@backward_of(ATTENTION)
def average_left_out(dy: Array, cache: AttentionCache) -> Any:
    """dscores = weights * dweights, but the backward of the softmax must subtract the weighted mean of dweights.

    Hides: right if this weighted mean is zero.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: weights * dweights)


@backward_of(ATTENTION)
def average_not_weighted(dy: Array, cache: AttentionCache) -> Any:
    """The plain mean of dweights is subtracted instead of the mean weighted by the weights.

    Hides: right if all weights of a query are equal, as they nearly are at the start of training.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: weights * (
        dweights - dweights.mean(axis=-1, keepdims=True)))


@backward_of(ATTENTION)
def softmax_left_out(dy: Array, cache: AttentionCache) -> Any:
    """dweights is used as dscores: the backward of the softmax is missing.

    Hides: the shapes agree, and dv is right.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: dweights)


def _about_attention(rng: np.random.Generator) -> Questions:
    def qkv(*lead: int, T_q: int = 2, T_k: int = 3, dtype: Any = np.float64) -> tuple[Array, ...]:
        shapes = (*lead, T_q, 4), (*lead, T_k, 4), (*lead, T_k, 1)
        return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)

    yield "two queries and three keys, no mask", (*qkv(), None)
    yield "a batch of heads", (*qkv(2, 3, T_k=5), None)
    q, k, v = qkv()
    yield "scores above a thousand, whose exponentials overflow", (1000 * q, k, v, None)
    yield "arrays of float32", (*qkv(2, dtype=np.float32), None)
    yield "a mask", (*qkv(), np.array([[True, True, False], [False, True, True]]))
    yield "a mask that hides all keys of the second query", (*qkv(), np.array([[False, True, False], [False] * 3]))


def _sums_of_rows(answer: Any) -> str:
    """A text about the sums of the rows of the weights, if they are not one; a row of zeros is fully masked."""
    weights = answer[1] if isinstance(answer, tuple) and len(answer) == 2 else None
    if not isinstance(weights, np.ndarray) or weights.ndim < 2 or not np.isfinite(weights).all():
        return ""
    sums = weights.sum(axis=-1)
    if np.isclose(sums, 1, atol=1e-3).all() or (weights == 0).all(axis=-1).any():
        return ""
    together = " All weights together sum to 1: the softmax needs sums with axis=-1 and keepdims=True."
    return (
        f"The rows of your weights sum to {', '.join(f'{one:.2f}' for one in sums.reshape(-1)[:4])}, but each row must "
        f"sum to 1.{together if np.isclose(weights.sum(), 1) else ''}"
    )


OURS = {"attention": attention}
EXERCISES = (
    Exercise(
        "attention_forward", 4,
        quizzes={"attention": Quiz(attention, _about_attention, ("y", "weights"), _sums_of_rows)},
        not_allowed=(ATTENTION, "tiled_attention"),
    ),
    Exercise("attention", 4, (
        Try(ATTENTION, QKV), Try(ATTENTION, QKV + ", mask: bool T_q T_k", "mask"),
        Try(ATTENTION, ONE_HEAD + ", mask: bool T_q T_k", "no leading axes"),
    ), leave_out=("dv_before_dropout", "broadcast_bias_not_summed", "first_head_of_the_group")),
    Exercise("attention_options", 6, (
        Try(ATTENTION, QKV + ", bias: H 1 T_k", "bias"), Try(ATTENTION, QKV + ", mask: bool T_q T_k", "mask"),
        Try(ATTENTION, QKV + ", bias: B H T_q T_k", "dropout", dropped(0.4)),
        Try(ATTENTION, GROUPED + GROUPS, "shared heads", at_least={"G": 2}),
    )),
)
