"""Chapter 12. Attention in little memory

Chapter 6 stores T_q x T_k scores, gigabytes for a long text. Storing them all is not necessary: the output of a query
is a sum over keys, and a sum can be computed in parts. Only the softmax is a problem, because its maximum and its total
are known only at the end. The **online softmax** uses provisional values. After some keys it stores for each query

    m = the largest score so far     l = sum_j exp(s_j - m)     a = sum_j exp(s_j - m) v_j

It takes the keys in blocks, called **tiles**. If the next tile raises the maximum to m', a factor corrects the old
sums:

    l' = l exp(m - m') + sum over the tile of exp(s_j - m')
    a' = a exp(m - m') + sum over the tile of exp(s_j - m') v_j

At the end y = a / l, exactly the softmax average of Chapter 6. For the backward we keep one number for each query,
L = m + log l. Any weight can be recomputed from it: w_ij = exp(s_ij - L_i).

The backward takes the same tiles and recomputes their scores. This costs more arithmetic but little memory. Within a
tile the code follows Chapter 6 line by line; grouped heads are folded into the query axis. Only the row sum of the
softmax needs all keys, not only the keys of the tile. It can be computed without an extra pass over the tiles:

    sum_j w_ij dw_ij = sum_j w_ij (dy_i . v_j) = dy_i . y_i = D_i

    dv_j += w_ij dy_i      ds_ij = w_ij (dy_i . v_j - D_i)      dq_i += scale ds_ij k_j      dk_j += scale ds_ij q_i

Besides the inputs and results, memory holds only L, D and a few tiles, so the memory grows with T, not with T^2. A
causal tile that is completely in the future is skipped, which halves the work. With a window, tiles too far in the past
are skipped as well, and the work grows only with T. Before the first key l and a are 0, and m is the lowest finite
number. A query that sees no key keeps these values; for every other query l is at least 1, since its largest score adds
exp(0). So we divide by max(l, 1): a query without keys gets y = 0, its L is the lowest number, and its weights in the
backward are exp(-inf - L) = 0.

The two functions `online_softmax` and `online_softmax_backward` do this for some queries of some heads. The appendix
calls them for all queries and heads, with the scale and D. It explains which tiles exist, and what a band is: a mask
and a bias that depend only on positions. There is no dropout of the weights here: a model that trains with dropout uses
the attention of Chapter 6. Models attend in tiles if the text is long (Chapter 21, appendix).
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_float, require_size, value_error
from numpy_attention.ops.c01a_sums import sum_in_rows
from numpy_attention.ops.c06_attention import check_attention_arguments
from numpy_attention.ops.c06b_shared_heads import fold_heads
from numpy_attention.ops.c12a_tiles import (
    Band,
    Pairs,
    TileSize,
    backward_in_tiles,
    forward_in_tiles,
    group,
    tile_size,
)
from numpy_attention.shapes import check_shapes


class TiledAttentionCache(NamedTuple):
    """Inputs, output, and one number for each query: nothing of size T x T."""

    q: np.ndarray  # (..., H_q, T_q, d_k)
    k: np.ndarray  # (..., H_kv, T_k, d_k)
    v: np.ndarray  # (..., H_kv, T_k, d_v)
    y: np.ndarray  # (..., H_q, T_q, d_v)
    L: np.ndarray  # (N, G, T_q, 1), log of the sum of exp(scores)
    pairs: Pairs  # the mask and the band
    scale: float
    tile: TileSize


def tiled_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, causal: bool = False,
    scale: float | None = None, block_size: int | None = None, window: int | None = None,
    slopes: np.ndarray | None = None, ahead: int | None = None,
) -> tuple[np.ndarray, TiledAttentionCache]:
    """The same function as `scaled_dot_product_attention`, without a T x T array in memory.

    Formula: y = softmax(scale q k^T + bias) v, with the scores of hidden pairs set to -inf. causal=True hides the
    same pairs as `causal_mask(T_q, T_k)`; a window hides the same pairs as
    `sliding_window_mask(T_q, window, T_k, ahead)`, where causal=True means ahead = 0. bias = -slopes * distance as in
    `alibi_bias`. These masks and this bias are never built as arrays. Hidden keys and values must be finite too,
    because 0 times NaN is NaN.

    Shapes: q (..., H_q, T_q, d_k), k (..., H_kv, T_k, d_k), v (..., H_kv, T_k, d_v) -> y (..., H_q, T_q, d_v);
    mask (bool) broadcastable to (..., H_q, T_q, T_k); slopes (H_q,), a constant without a gradient

    Units: a tile has block_size queries and block_size keys; the default is the fastest shape. window counts keys,
    including the key at the query's own position; ahead counts later keys.

    Raises: ValueError when shapes do not fit, for sizes below 1, or a window without causal and ahead; TypeError for
    dtypes other than float32 and float64 (mask: bool).

    Source: Milakov, Gimelshein, Online Normalizer Calculation for Softmax (2018); Dao et al., FlashAttention (2022),
    algorithms 1 and 4.

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.normal(size=(3, 5, 4))
    >>> y, cache = tiled_attention(q, k, v, causal=True, block_size=2)
    >>> bool(np.allclose(y[0], v[0]))  # the first query sees the first key only
    True
    """
    band = Band(causal, window, slopes, ahead)
    check_tiled("tiled_attention", q, k, v, mask, band, scale, block_size)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    pairs, tile = Pairs(mask, band, q, k), tile_size(block_size, k.shape[-2], band)
    y, L = forward_in_tiles(online_softmax, q, k, v, pairs, scale, tile)
    return y, TiledAttentionCache(q, k, v, y, L, pairs, scale, tile)


def tiled_attention_backward(
    dy: np.ndarray, cache: TiledAttentionCache
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of `tiled_attention`, tile by tile: ds = w (dw - D), D = rowsum(dy y); w is recomputed from L.

    Shapes: dy (..., H_q, T_q, d_v) -> dq, dk, dv as q, k, v
    """
    require_cotangent("tiled_attention_backward", "dy", dy, cache.y.shape, cache.y.dtype)
    return backward_in_tiles(online_softmax_backward, dy, cache)


def online_softmax(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, tiles: Iterable[slice], hide: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The output y of some queries, which contain the scale, and L; `hide` acts on the scores of a tile of keys.

    Shapes: q (n, t_q, d_k), k (n, T_k, d_k), v (n, T_k, d_v) -> y (n, t_q, d_v), L (n, t_q, 1)
    """
    m = np.full_like(q, np.finfo(q.dtype).min, shape=(*q.shape[:-1], 1))  # (n, t_q, 1)
    l = np.zeros_like(m)
    a = np.zeros_like(q, shape=(*q.shape[:-1], v.shape[-1]))  # (n, t_q, d_v)
    for keys in tiles:
        s = hide(keys, q @ k[:, keys].swapaxes(-1, -2))  # (n, t_q, t_k)
        new_m = np.maximum(m, s.max(axis=-1, keepdims=True))
        shrink = np.exp(m - new_m)
        w = np.exp(s - new_m)  # not yet divided by l
        l = l * shrink + sum_in_rows(w)
        a = a * shrink + w @ v[:, keys]
        m = new_m
    l = np.maximum(l, 1.0)  # only a query that sees no key has l < 1: 0, with a = 0
    return a / l, m + np.log(l)


def online_softmax_backward(
    dy: np.ndarray, L: np.ndarray, D: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, tiles: Iterable[slice],
    hide: Callable[..., np.ndarray], dk: np.ndarray, dv: np.ndarray,
) -> np.ndarray:
    """The gradient of the queries with their scale; those of keys and values are added to dk and dv.

    Shapes: dy (n, t_q, d_v), L and D (n, t_q, 1), and as in `online_softmax` -> dq (n, t_q, d_k)
    """
    dq = np.zeros_like(q)
    for keys in tiles:
        s = hide(keys, q @ k[:, keys].swapaxes(-1, -2))  # (n, t_q, t_k)
        s -= L
        w = np.exp(s, out=s)  # in the memory of s
        # y = w @ v
        dv[:, keys] += w.swapaxes(-1, -2) @ dy
        dw = dy @ v[:, keys].swapaxes(-1, -2)
        # w = softmax(s)
        ds = w * (dw - D)
        # s = q @ k^T, and constants
        dq += ds @ k[:, keys]
        dk[:, keys] += ds.swapaxes(-1, -2) @ q
    return dq


def tiled_attention_weights(cache: TiledAttentionCache) -> np.ndarray:
    """All weights of a call, recomputed from q, k and L for inspection. The op itself avoids this T x T array.

    Formula: w_ij = exp(s_ij - L_i)

    Shapes: -> (..., H_q, T_q, T_k), as `weights` in the cache of `scaled_dot_product_attention`

    Raises: MemoryError when the weights do not fit into memory. `tiled_attention` raises every ValueError or TypeError.

    Source: Dao et al., FlashAttention (2022), algorithm 4.

    >>> q, k, v = np.zeros((1, 2)), np.ones((3, 2)), np.array([[1.0], [2.0], [6.0]])
    >>> _, cache = tiled_attention(q, k, v, mask=np.array([True, True, False]))
    >>> tiled_attention_weights(cache)
    array([[0.5, 0.5, 0. ]])
    """
    q, k = cache.q, cache.k
    qg, kg, _ = group(q, k, cache.v)
    s = fold_heads(qg * cache.scale, kg) @ kg.swapaxes(-1, -2)  # (N, G T_q, T_k)
    s = cache.pairs.forward(slice(0, len(kg)), slice(0, q.shape[-2]), slice(0, k.shape[-2]), s)
    s -= fold_heads(cache.L, kg)
    return np.exp(s, out=s).reshape(*q.shape[:-1], k.shape[-2])


def check_tiled(
    op: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, band: Band,
    scale: float | None, block_size: int | None,
) -> None:
    """Check the arguments of attention in tiles; each error suggests a likely fix."""
    check_attention_arguments(op, q, k, v, mask, None, scale)
    if block_size is not None:
        require_size(op, "block_size", block_size)
    if band.window is not None:
        require_size(op, "window", band.window, fix="with a window of 1 a position sees only itself")
    if band.ahead is not None:
        require_size(op, "ahead", band.ahead, at_least=0)
    if band.causal and band.ahead:
        raise value_error(op, "ahead", "0 or None with causal=True", band.ahead, "a causal query sees no later keys")
    if band.window is not None and band.ahead is None and not band.causal:
        fix = "how many later keys does a query see? causal=True means none"
        raise value_error(op, "ahead", "a number with a window", band.ahead, fix)
    if band.slopes is not None:
        fixes = {"slopes": "use alibi_slopes(num_heads)", "q": "with slopes, q needs an axis of heads: q[None]"}
        require_float(op, slopes=band.slopes)
        check_shapes(op, "q: ... H_q T_q d_k, slopes: H_q", fixes=fixes, q=q, slopes=band.slopes.astype(q.dtype))
