"""Slips in attention, written from nothing or in its backward, and in attention with stored keys."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.grade import references
from numpy_attention.grade.slips.registry import slip
from numpy_attention.ops.attention import AttentionCache, fold_heads, scaled_dot_product_attention_backward
from numpy_attention.ops.dropout import dropout_backward
from numpy_attention.ops.masks import causal_mask

Array = np.ndarray


def _weights(scores: Array, axis: int = -1) -> Array:
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def _scores(q: Array, k: Array) -> Array:
    return np.asarray(q @ k.swapaxes(-1, -2) / np.asarray(np.sqrt(q.shape[-1]), q.dtype))


@slip("attention", "stand_in")
def scores_not_scaled(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The scores are not divided by sqrt(d_k), so they grow with the width, and the weights go to one key alone.

    Hides: shapes and sums are right; it trains, though slower the wider the heads.
    """
    return references.attention(q * np.asarray(np.sqrt(q.shape[-1]), q.dtype), k, v, mask)


@slip("attention", "stand_in")
def scores_divided_by_d_k(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The scores are divided by d_k, where the formula has its root.

    Hides: shapes and sums are right; the weights are merely too even.
    """
    return references.attention(q / np.asarray(np.sqrt(q.shape[-1]), q.dtype), k, v, mask)


@slip("attention", "stand_in")
def softmax_over_the_queries(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The softmax runs down the columns: the weights of a query must sum to one over the keys, along the last axis.

    Hides: the shapes agree.
    """
    scores = _scores(q, k)
    weights = _weights(scores if mask is None else np.where(mask, scores, -np.inf), axis=-2)
    return weights @ v, weights


@slip("attention", "stand_in")
def mask_ignored(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The mask is not used yet; that is tutorial 5: a key that a query may not see gets the score -inf.

    Hides: right as long as every key is seen.
    """
    return references.attention(q, k, v)


@slip("attention", "stand_in")
def mask_upside_down(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """True hides; here a mask says where a query may look, so False must hide.

    Hides: other libraries mean the opposite; without a mask it is right.
    """
    return references.attention(q, k, v, None if mask is None else ~mask)


@slip("attention", "stand_in")
def mask_behind_the_softmax(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """Hidden weights are set to zero behind the softmax, so that the others no longer sum to one: mask the scores.

    Hides: hidden keys have no say, as it should be; without a mask it is right.
    """
    weights = _weights(_scores(q, k))
    weights = weights if mask is None else weights * mask
    return weights @ v, weights


@slip("attention", "stand_in")
def hidden_scores_of_zero(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """Hidden scores are multiplied to zero, and exp(0) = 1 is no small weight: they must be -inf.

    Hides: without a mask it is right.
    """
    scores = _scores(q, k)
    weights = _weights(scores if mask is None else scores * mask)
    return weights @ v, weights


@slip("attention", "stand_in")
def evenly_over_what_is_hidden(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """Hidden scores are -1e9, so a query that may look at nothing looks evenly at all of it; it must get zeros.

    Hides: right for every query that may look at something.
    """
    scores = _scores(q, k)
    weights = _weights(scores if mask is None else np.where(mask, scores, np.asarray(-1e9, q.dtype)))
    return weights @ v, weights


@slip("attention", "stand_in")
def nan_where_nothing_is_seen(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """A row of -inf alone becomes NaN, since exp(-inf + inf) is; a query that may look at nothing must get zeros.

    Hides: right for every query that may look at something.
    """
    scores = _scores(q, k)
    weights = _weights(scores if mask is None else np.where(mask, scores, -np.inf))
    return weights @ v, weights


@slip("attention", "stand_in")
def largest_not_subtracted(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """exp of a score of 1000 is infinite, and inf / inf NaN: subtract the row's largest score first.

    Hides: right while scores are small, as they are before training.
    """
    e = np.exp(_scores(q, k))
    e = e if mask is None else e * mask
    total = e.sum(axis=-1, keepdims=True)
    weights = e / np.where(total == 0, 1, total)
    return weights @ v, weights


def _with_dscores(dy: Array, cache: AttentionCache, dscores_of: Callable[[Array, Array], Array]) -> Any:
    q, k, v, weights, *_ = cache
    ddropped = (fold_heads(dy, k) @ v.swapaxes(-1, -2)).reshape(weights.shape)
    full = dscores_of(dropout_backward(ddropped, cache.dropout), weights)
    dscores = fold_heads(full, k)
    dq, dk = dscores @ k * cache.scale, dscores.swapaxes(-1, -2) @ fold_heads(q, k) * cache.scale
    _, _, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    if dbias is not None:
        shape = (1,) * (full.ndim - dbias.ndim) + dbias.shape
        axes = tuple(i for i, size in enumerate(shape) if size == 1)
        dbias = full.sum(axis=axes, keepdims=True).reshape(dbias.shape)
    return dq.reshape(q.shape), dk, dv, dbias


@slip("scaled_dot_product_attention")
def average_left_out(dy: Array, cache: AttentionCache) -> Any:
    """dscores = weights * dweights, without the average of dweights that the softmax subtracts from it.

    Hides: where that average, weighted by the weights, happens to be zero.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: weights * dweights)


@slip("scaled_dot_product_attention")
def average_not_weighted(dy: Array, cache: AttentionCache) -> Any:
    """The plain mean of dweights is subtracted, where the average weighted by the weights belongs.

    Hides: right where a query looks evenly at all keys, as it nearly does at the start of training.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: weights * (
        dweights - dweights.mean(axis=-1, keepdims=True)))


@slip("scaled_dot_product_attention")
def softmax_left_out(dy: Array, cache: AttentionCache) -> Any:
    """dweights goes on as dscores, as if the weights were the scores: the softmax has a gradient of its own.

    Hides: shapes agree, and dv is right.
    """
    return _with_dscores(dy, cache, lambda dweights, weights: dweights)


def _with_mask(mask: Any, x: Array, past_k: Array, past_v: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    k, v = np.concatenate([past_k, x @ w_k]), np.concatenate([past_v, x @ w_v])
    return references.attention(x @ w_q, k, v, mask(len(x), len(past_k)))[0], k, v


@slip("next_outputs", "stand_in")
def no_mask_among_the_new(*arrays: Array) -> Any:
    """New tokens that come together see each other's future: behind the store they need the causal mask all the same.

    Hides: right while tokens come one at a time.
    """
    return _with_mask(lambda new, stored: None, *arrays)


@slip("next_outputs", "stand_in")
def mask_from_the_first_key(*arrays: Array) -> Any:
    """The mask begins at key 0, as if the first new token stood at position 0; it stands behind all that is stored.

    Hides: right while nothing is stored.
    """
    return _with_mask(lambda new, stored: causal_mask(new + stored, new + stored)[:new], *arrays)


@slip("next_outputs", "stand_in")
def own_key_not_seen(*arrays: Array) -> Any:
    """A new token looks at what is stored and not at itself: its own key must be stored before it looks.

    Hides: the text still reads well.
    """
    return _with_mask(lambda new, stored: np.tri(new, new + stored, stored - 1, dtype=bool), *arrays)


@slip("next_outputs", "stand_in")
def store_ignored(x: Array, past_k: Array, past_v: Array, *w: Array) -> Any:
    """The new tokens look only at each other: what is stored takes no part, and is lost.

    Hides: right while nothing is stored.
    """
    return references.next_outputs(x, past_k[:0], past_v[:0], *w)


@slip("next_outputs", "stand_in")
def new_keys_in_front(*arrays: Array) -> Any:
    """The new keys are put in front of the stored ones, so the store is in no order that a mask could know.

    Hides: attention asks for no order, so a single new token gets the right output.
    """
    x, past_k, past_v, _, w_k, w_v = arrays
    y, *_ = references.next_outputs(*arrays)
    return y, np.concatenate([x @ w_k, past_k]), np.concatenate([x @ w_v, past_v])
