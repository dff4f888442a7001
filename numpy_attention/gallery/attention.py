"""Wrong backwards of attention, by weights in full and by tiles: scales, transposes, masks, heads that share keys."""

from typing import Any

import numpy as np

from numpy_attention.gallery.registry import backward_of, op_of
from numpy_attention.ops.attention import (
    AttentionCache,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from numpy_attention.ops.tiled_attention import TiledAttentionCache, tiled_attention_backward
from numpy_attention.ops.tiles import Band, TileDropout, key_tiles, query_tiles

ATTENTION = "scaled_dot_product_attention"


def _fold(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    return x.reshape(*k.shape[:-2], -1, x.shape[-1])


@backward_of(ATTENTION)
def dv_before_dropout(dy: np.ndarray, cache: AttentionCache) -> Any:
    """dv uses the weights before dropout, though the output was made of those after it.

    Hides: dropout is off in the test.
    """
    return scaled_dot_product_attention_backward(dy, cache._replace(dropped=cache.weights))


@backward_of(ATTENTION)
def scale_left_out(dy: np.ndarray, cache: AttentionCache) -> Any:
    """The 1/sqrt(d_k) of the scores is missing in dq and dk.

    Hides: the direction is right, and the learning rate absorbs the rest.
    """
    dq, dk, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    return dq / cache.scale, dk / cache.scale, dv, dbias


@backward_of(ATTENTION)
def scale_applied_twice(dy: np.ndarray, cache: AttentionCache) -> Any:
    """dscores is scaled, and then dq and dk once more.

    Hides: the direction is right, and the learning rate absorbs the rest.
    """
    dq, dk, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    return dq * cache.scale, dk * cache.scale, dv, dbias


def _with_bias(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, bias: np.ndarray | None = None,
    **options: Any,
) -> Any:
    y, cache = scaled_dot_product_attention(q, k, v, mask, bias, **options)
    return y, (cache, bias)


def _without_the_mask(dy: np.ndarray, cache: tuple[AttentionCache, np.ndarray | None]) -> Any:
    inner, bias = cache
    _, unmasked = scaled_dot_product_attention(inner.q, inner.k, inner.v, None, bias, inner.scale)
    dq, dk, _, dbias = scaled_dot_product_attention_backward(dy, inner._replace(weights=unmasked.weights))
    return dq, dk, scaled_dot_product_attention_backward(dy, inner)[2], dbias


@op_of(ATTENTION, _without_the_mask)
def mask_in_the_forward_only(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, **options: Any) -> Any:
    """The backward makes the weights again and forgets the mask, so gradient leaks into hidden keys.

    Hides: there is no mask in the test, or one that is all True.
    """
    return _with_bias(q, k, v, mask, **options)


@backward_of(ATTENTION)
def dk_not_transposed(dy: np.ndarray, cache: AttentionCache) -> Any:
    """dk = dscores q, where row j of dk must sum over the queries that looked at key j: dscores^T q.

    Hides: the shapes agree when T_q = T_k.
    """
    dq, _, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    q, k, v, weights, *_ = cache
    dweights = (_fold(dy, k) @ v.swapaxes(-1, -2)).reshape(weights.shape)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    return dq, _fold(dscores, k) @ _fold(q, k) * cache.scale, dv, dbias


@backward_of(ATTENTION)
def dv_not_transposed(dy: np.ndarray, cache: AttentionCache) -> Any:
    """dv = weights dy, where a value must collect from the queries that used it: weights^T dy.

    Hides: the shapes agree when T_q = T_k.
    """
    dq, dk, _, dbias = scaled_dot_product_attention_backward(dy, cache)
    return dq, dk, _fold(cache.dropped, cache.k) @ _fold(dy, cache.k), dbias


@backward_of(ATTENTION)
def softmax_of_the_columns(dy: np.ndarray, cache: AttentionCache) -> Any:
    """The softmax's sum in the backward runs over the queries instead of the keys.

    Hides: the shapes agree everywhere; each term has the right size.
    """
    _, _, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    q, k, v, weights, *_ = cache
    dweights = (_fold(dy, k) @ v.swapaxes(-1, -2)).reshape(weights.shape)
    dscores = _fold(weights * (dweights - (dweights * weights).sum(axis=-2, keepdims=True)), k)
    return (dscores @ k * cache.scale).reshape(q.shape), dscores.swapaxes(-1, -2) @ _fold(q, k) * cache.scale, dv, dbias


@backward_of(ATTENTION)
def broadcast_bias_not_summed(dy: np.ndarray, cache: AttentionCache) -> Any:
    """A bias shared by all sequences of the batch gets the gradient of the first one only.

    Hides: right for a batch of one, or for a bias of full shape.
    """
    dq, dk, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    if dbias is None:
        return dq, dk, dv, None
    full = scaled_dot_product_attention_backward(dy, cache._replace(bias_shape=cache.weights.shape))[3]
    assert full is not None
    for axis, size in enumerate((1,) * (full.ndim - dbias.ndim) + dbias.shape):
        if size == 1:
            full = np.take(full, [0], axis=axis)
    return dq, dk, dv, full.reshape(dbias.shape)


@backward_of(ATTENTION)
def first_head_of_the_group(dy: np.ndarray, cache: AttentionCache) -> Any:
    """Several query heads share a key head, but dk and dv come from the first of them alone.

    Hides: right when every query head has keys of its own.
    """
    dq, dk, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    q, k = cache.q, cache.k
    if q.shape[:-2] == k.shape[:-2]:
        return dq, dk, dv, dbias
    first = np.zeros_like(dy)
    group = q.shape[-3] // k.shape[-3]
    first[..., ::group, :, :] = dy[..., ::group, :, :]
    _, dk, dv, _ = scaled_dot_product_attention_backward(first, cache)
    return dq, dk, dv, dbias


@backward_of("tiled_attention")
def rescaled_sum_forgotten(dy: np.ndarray, cache: TiledAttentionCache) -> Any:
    """L is taken as the log of the sum without the maximum, so the remade weights are too small by exp(-m).

    Hides: nearly right while all scores are near zero, as they are before training.
    """
    heads = cache.q.reshape(*cache.L.shape[:3], -1)
    keys = cache.k.reshape(cache.L.shape[0], 1, *cache.k.shape[-2:])
    scores = heads @ keys.swapaxes(-1, -2) * cache.scale  # (N, G, T_q, T_k)
    return tiled_attention_backward(dy, cache._replace(L=cache.L + np.maximum(scores.max(axis=-1, keepdims=True), 0.0)))


@backward_of("tiled_attention")
def row_sum_left_out(dy: np.ndarray, cache: TiledAttentionCache) -> Any:
    """The softmax's row sum D = sum(dy * y) is left out of dscores.

    Hides: dv is right, and the loss still falls.
    """
    return tiled_attention_backward(dy, cache._replace(y=np.zeros_like(cache.y)))


@backward_of("tiled_attention")
def last_tile_only(dy: np.ndarray, cache: TiledAttentionCache) -> Any:
    """dq of a tile is overwritten by the next tile of keys where it must be added up.

    Hides: right while a single tile holds all keys.
    """
    _, dk, dv = tiled_attention_backward(dy, cache)
    T_q, T_k = cache.q.shape[-2], cache.k.shape[-2]
    last = np.zeros((T_q, T_k), bool)
    for rows in query_tiles(T_q, cache.tile):
        for columns in key_tiles(rows, T_q, T_k, cache.tile, cache.band):
            last[rows] = False
            last[rows, columns] = True
    mask = last if cache.mask is None else last & cache.mask
    return tiled_attention_backward(dy, cache._replace(mask=mask))[0], dk, dv


@backward_of("tiled_attention")
def tile_mask_left_out(dy: np.ndarray, cache: TiledAttentionCache) -> Any:
    """The remade scores are not masked again, so gradient leaks into hidden keys.

    Hides: there is no mask in the test; causal tiles that are skipped whole hide most of it.
    """
    return tiled_attention_backward(dy, cache._replace(mask=None, band=Band(slopes=cache.band.slopes)))


@backward_of("tiled_attention")
def dropout_of_another_tile(dy: np.ndarray, cache: TiledAttentionCache) -> Any:
    """The backward counts the columns from one, the forward from zero, so that it draws the numbers of another tile.

    Hides: dropout is off in the test.
    """

    class Shifted(TileDropout):
        def factors(self, s: np.ndarray, heads: slice, rows: slice, columns: slice) -> np.ndarray | None:
            return super().factors(s, heads, rows, slice(columns.start + 1, columns.stop + 1))

    return tiled_attention_backward(dy, cache._replace(dropout=Shifted(*cache.dropout)))


@backward_of("tiled_attention")
def distance_forgotten(dy: np.ndarray, cache: TiledAttentionCache) -> Any:
    """The remade scores are not lowered by distance, as if ALiBi, which has no gradient, had no place in the backward.

    Hides: there are no slopes in the test.
    """
    return tiled_attention_backward(dy, cache._replace(band=cache.band._replace(slopes=None)))
