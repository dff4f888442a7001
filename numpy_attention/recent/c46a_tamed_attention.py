"""Chapter 46, continued. Attention with a softcap and a sink

The attention of Chapter 6, with softcap in its first line and a sink in its second:

    scores  = softcap(scale q k^T) + bias      the cap comes before the bias and the mask
    weights = softmax_with_sink(scores)        a row sums to 1 - p
    y       = weights v

The backward is the same three lines from the last to the first, each with the backward of Chapters 6 and 46.

In tiles (Chapter 12), softcap changes the scores of a tile before the band. A sink needs no tile: let y and L be the
result without it. With the sink, the total of a query is exp(L) + exp(sink), so

    L' = log(exp(L) + exp(sink))        y' = y exp(L - L')

The backward in tiles recomputes all weights from L' and takes its row sum D from y', so dq, dk and dv need no other
change. The weight of the sink is p_i = exp(sink - L'_i). Its price is 0, so with D_i = dy_i . y'_i

    dsink = sum_i p_i (0 - D_i)
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_number
from numpy_attention.ops.c01a_sums import dot_in_rows, sum_to_shape
from numpy_attention.ops.c03_softmax import softmax, softmax_backward
from numpy_attention.ops.c05_dropout import DropoutCache, dropout_backward
from numpy_attention.ops.c05_dropout import dropout as drop  # `drop`, because `dropout` is an argument below (the rate)
from numpy_attention.ops.c06_attention import check_attention_arguments
from numpy_attention.ops.c06b_shared_heads import product, transposed_product
from numpy_attention.ops.c12_tiled_attention import (
    TiledAttentionCache,
    check_tiled,
    online_softmax,
    online_softmax_backward,
)
from numpy_attention.ops.c12a_tiles import Band, Pairs, backward_in_tiles, forward_in_tiles, tile_size
from numpy_attention.recent.c46_scores import (
    CAPS,
    softcap_backward,
    softmax_with_sink,
    softmax_with_sink_backward,
)
from numpy_attention.recent.c46_scores import softcap as limit  # `limit`, because `softcap` is an argument below
from numpy_attention.shapes import check_shapes


class TamedAttentionCache(NamedTuple):
    """Everything the backward needs; plot `weights` to see which keys each query attends to."""

    q: np.ndarray  # (..., H_q, T_q, d_k)
    k: np.ndarray  # (..., H_kv, T_k, d_k)
    v: np.ndarray  # (..., H_kv, T_k, d_v)
    weights: np.ndarray  # (..., H_q, T_q, T_k); with a sink, the rows sum to less than one
    dropped: np.ndarray  # the weights after dropout
    dropout: DropoutCache
    scale: float
    bias_shape: tuple[int, ...] | None
    slope: np.ndarray | None  # of softcap, (..., H_q, T_q, T_k)
    softmax: Any  # the cache of the softmax
    has_sink: bool


def tamed_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, bias: np.ndarray | None = None,
    scale: float | None = None, dropout: float = 0.0, rng: np.random.Generator | None = None,
    softcap: float | None = None, sink: np.ndarray | None = None,
) -> tuple[np.ndarray, TamedAttentionCache]:
    """`scaled_dot_product_attention` with a limit for the scores, and a sink that takes a part of the weights.

    Formula: y = softmax_with_sink(c tanh(scale q k^T / c) + bias, sink) v with c = softcap; hidden pairs at -inf

    Shapes: as `scaled_dot_product_attention`; sink (H_q,), and then q has an axis of heads

    Units: scores, bias, softcap and sink in nats.

    Raises: ValueError when shapes do not fit, or for a softcap below 1e-30 or above 1e30; TypeError for a mask that is
    not bool, or dtypes that differ.

    Source: softcap: Gemma Team, Gemma 2 (2024), section 2; sink: OpenAI, gpt-oss-120b & gpt-oss-20b Model Card (2025).

    >>> q, k, v = np.zeros((1, 1, 2)), np.ones((1, 3, 2)), np.array([[[1.0], [2.0], [6.0]]])
    >>> tamed_attention(q, k, v, sink=np.zeros(1))[0]  # four equal weights; the sink has no value
    array([[[2.25]]])
    """
    check_attention_arguments("tamed_attention", q, k, v, mask, bias, scale)
    _check_taming("tamed_attention", q, softcap, sink)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)

    scores = product(q * scale, k.swapaxes(-1, -2))  # (..., H_q, T_q, T_k)
    slope = None
    if softcap is not None:
        scores, slope = limit(scores, softcap)
    if bias is not None:
        scores += bias
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask)
    weights, of_softmax = softmax(scores) if sink is None else softmax_with_sink(scores, sink)
    dropped, dropout_cache = drop(weights, dropout, rng)
    y = product(dropped, v)  # (..., H_q, T_q, d_v)

    bias_shape = None if bias is None else bias.shape
    cache = TamedAttentionCache(
        q, k, v, weights, dropped, dropout_cache, scale, bias_shape, slope, of_softmax, sink is not None
    )
    return y, cache


def tamed_attention_backward(dy: np.ndarray, cache: TamedAttentionCache) -> tuple[Any, ...]:
    """Gradients of `tamed_attention`: dq, dk, dv, dbias and dsink.

    Shapes: dy (..., H_q, T_q, d_v) -> the shapes of q, k, v, bias and sink; None for a bias or a sink that is off
    """
    q, k, v, _, dropped, dropout_cache, scale, bias_shape, slope, of_softmax, has_sink = cache
    require_cotangent("tamed_attention_backward", "dy", dy, (*q.shape[:-1], v.shape[-1]), q.dtype)

    # y = dropped @ v
    dv = transposed_product(dropped, dy, k)  # (..., H_kv, T_k, d_v)
    ddropped = product(dy, v.swapaxes(-1, -2))  # (..., H_q, T_q, T_k)
    # dropped = dropout(weights)
    dweights = dropout_backward(ddropped, dropout_cache)
    # weights = softmax_with_sink(scores, sink)
    dsink = None
    if has_sink:
        dscores, dsink = softmax_with_sink_backward(dweights, of_softmax)
    else:
        dscores = softmax_backward(dweights, of_softmax)
    # scores = softcap(scale * q @ k^T) + bias
    dbias = None if bias_shape is None else sum_to_shape(dscores, bias_shape)
    if slope is not None:
        dscores = softcap_backward(dscores, slope)
    dq = scale * product(dscores, k)  # (..., H_q, T_q, d_k)
    dk = scale * transposed_product(dscores, q, k)  # (..., H_kv, T_k, d_k)
    return dq, dk, dv, dbias, dsink


class CappedPairs(Pairs):
    """The softcap, then the mask and the band, applied to the scores of one tile at a time."""

    softcap: float | None = None

    def forward(self, heads: slice, rows: slice, columns: slice, scores: np.ndarray) -> np.ndarray:
        if self.softcap is not None:
            scores, _ = limit(scores, self.softcap)
        return super().forward(heads, rows, columns, scores)


def capped_softmax_backward(
    softcap: float, dy: np.ndarray, L: np.ndarray, D: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray,
    tiles: Iterable[slice], hide: Callable[..., np.ndarray], dk: np.ndarray, dv: np.ndarray,
) -> np.ndarray:
    """`online_softmax_backward` with a softcap, which `hide` applies to the scores of a tile."""
    dq = np.zeros_like(q)
    for keys in tiles:
        s = q @ k[:, keys].swapaxes(-1, -2)  # (n, t_q, t_k)
        _, slope = limit(s, softcap)
        w = np.exp(hide(keys, s) - L)
        # y = w @ v
        dv[:, keys] += w.swapaxes(-1, -2) @ dy
        dw = dy @ v[:, keys].swapaxes(-1, -2)
        # w = softmax(softcap(s))
        ds = softcap_backward(w * (dw - D), slope)
        # s = q @ k^T
        dq += ds @ k[:, keys]
        dk[:, keys] += ds.swapaxes(-1, -2) @ q
    return dq


class TamedTilesCache(NamedTuple):
    """The cache of attention in tiles, the sink and the softcap."""

    tiles: TiledAttentionCache
    sink: np.ndarray | None  # (H_q,)
    softcap: float | None


def tamed_tiled_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, causal: bool = False,
    scale: float | None = None, block_size: int | None = None, window: int | None = None,
    slopes: np.ndarray | None = None, ahead: int | None = None, softcap: float | None = None,
    sink: np.ndarray | None = None,
) -> tuple[np.ndarray, TamedTilesCache]:
    """The same function as `tamed_attention`, without a T x T array in memory.

    Formula: as `tamed_attention`, with the mask and the bias of a band as in `tiled_attention`

    Shapes: as `tiled_attention`; sink (H_q,), and then q has an axis of heads

    Raises: ValueError and TypeError, as `tiled_attention` and `tamed_attention`.

    Source: Dao et al., FlashAttention (2022), algorithms 1 and 4.
    """
    band = Band(causal, window, slopes, ahead)
    check_tiled("tamed_tiled_attention", q, k, v, mask, band, scale, block_size)
    _check_taming("tamed_tiled_attention", q, softcap, sink)
    pairs = CappedPairs(mask, band, q, k)
    pairs.softcap = softcap
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    tile = tile_size(block_size, k.shape[-2], band)
    y, L = forward_in_tiles(online_softmax, q, k, v, pairs, scale, tile)
    tiles = TiledAttentionCache(q, k, v, y, L, pairs, scale, tile)
    if sink is not None:
        L = L.reshape(*q.shape[:-1], 1)  # (..., H_q, T_q, 1)
        m = np.maximum(L, sink[:, None, None])
        with_sink = m + np.log(np.exp(L - m) + np.exp(sink[:, None, None] - m))
        y = y * np.exp(L - with_sink)
        tiles = tiles._replace(y=y, L=with_sink.reshape(tiles.L.shape))
    return y, TamedTilesCache(tiles, sink, softcap)


def tamed_tiled_attention_backward(dy: np.ndarray, cache: TamedTilesCache) -> tuple[Any, ...]:
    """Gradients of `tamed_tiled_attention`: dq, dk, dv and dsink (None without a sink).

    Shapes: dy (..., H_q, T_q, d_v) -> the shapes of q, k, v and sink
    """
    tiles, sink, softcap = cache
    require_cotangent("tamed_tiled_attention_backward", "dy", dy, tiles.y.shape, tiles.y.dtype)
    of_queries = online_softmax_backward if softcap is None else partial(capped_softmax_backward, softcap)
    dq, dk, dv = backward_in_tiles(of_queries, dy, tiles)
    if sink is None:
        return dq, dk, dv, None
    # weights, p = softmax([scores, sink])
    D = dot_in_rows(dy, tiles.y)  # (..., H_q, T_q, 1)
    p = np.exp(sink[:, None, None] - tiles.L.reshape(D.shape))
    return dq, dk, dv, sum_to_shape(-p * D, (len(sink), 1, 1)).reshape(-1)


def _check_taming(op: str, q: np.ndarray, softcap: float | None, sink: np.ndarray | None) -> None:
    if softcap is not None:
        require_number(op, "softcap", softcap, **CAPS, fix="None turns softcap off")
    if sink is not None:
        fixes = {"sink": "one number for each head", "q": "with a sink, q needs an axis of heads: q[None]"}
        check_shapes(op, "q: ... H_q T_q d_k, sink: H_q", fixes=fixes, q=q, sink=sink)
