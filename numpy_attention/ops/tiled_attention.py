"""Chapter 12. Attention in little memory

Chapter 6 holds T_q x T_k scores, gigabytes for a long text. Nothing forces it to: the output of a query is a sum over
keys, and sums can be taken in pieces. Only the softmax stands in the way, since its maximum and its total are known
at the end. The online softmax carries provisional ones. After some keys a query knows

    m = the largest score so far     l = sum_j exp(s_j - m)     a = sum_j exp(s_j - m) v_j

and when a further tile of keys raises the maximum to m', the old sums only change their reference point:

    l' = l exp(m - m') + sum over the tile of exp(s_j - m')        a' likewise, with v_j

At the end y = a / l, exactly the softmax average of Chapter 6. One number a query is kept for the backward,
L = m + log l, because any weight can be made again from it: w_ij = exp(s_ij - L_i).

The backward walks over the same tiles and remakes their scores: more arithmetic, little memory. Within a tile it is
Chapter 6 line by line, grouped heads folded into the query axis, but the softmax's row sum runs over all keys, not
only the tile's. It need not be collected:

    sum_j w_ij dw_ij = sum_j w_ij (dy_i . v_j) = dy_i . y_i = D_i

    dv_j += w_ij dy_i      ds_ij = w_ij (dy_i . v_j - D_i)      dq_i += scale ds_ij k_j      dk_j += scale ds_ij q_i

Memory beyond the inputs and results is L and a few tiles: it grows with T, not with T^2. A causal tile that lies wholly
in the future is skipped, which halves the work. For a query that may look at nothing l stays 0: its y is 0, and L is
the lowest number there is, so that its weights exp(-inf - L) are 0 again in the backward.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import dtype_error, require_cotangent, value_error
from numpy_attention.ops.attention import fold_heads
from numpy_attention.ops.attention_arguments import check_attention_arguments
from numpy_attention.ops.sums import dot_in_rows, sum_in_rows

_TILE_ELEMENTS = 2**17  # scores at hand at a time: half a megabyte in float32, to fit fast memory


class TiledAttentionCache(NamedTuple):
    """Inputs, output, and one number a query: nothing of size T x T."""

    q: np.ndarray  # (..., H_q, T_q, d_k)
    k: np.ndarray  # (..., H_kv, T_k, d_k)
    v: np.ndarray  # (..., H_kv, T_k, d_v)
    mask: np.ndarray | None
    y: np.ndarray  # (..., H_q, T_q, d_v)
    L: np.ndarray  # (N, G, T_q, 1), log of the sum of exp(scores)
    causal: bool
    scale: float
    block_size: int


def tiled_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    causal: bool = False,
    scale: float | None = None,
    block_size: int = 256,
) -> tuple[np.ndarray, TiledAttentionCache]:
    """The same function as `scaled_dot_product_attention`, without ever holding a T x T array.

    Formula: y = softmax(scale q k^T) v, hidden pairs at -inf; causal=True is `causal_mask(T_q, T_k)`, never built

    Shapes: q (..., H_q, T_q, d_k), k (..., H_kv, T_k, d_k), v (..., H_kv, T_k, d_v) -> y (..., H_q, T_q, d_v);
    mask (bool) broadcastable to (..., H_q, T_q, T_k)

    Units: block_size counts queries and keys: a tile is block_size x block_size.

    Raises: ValueError when shapes do not meet or block_size is below 1; TypeError for dtypes.

    Source: Milakov, Gimelshein, Online Normalizer Calculation for Softmax (2018); Dao et al., FlashAttention (2022),
    algorithms 1 and 4.

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.normal(size=(3, 5, 4))
    >>> y, cache = tiled_attention(q, k, v, causal=True, block_size=2)
    >>> bool(np.allclose(y[0], v[0]))  # the first query sees the first key only
    True

    Derivation: Chapter 12, the head of numpy_attention/ops/tiled_attention.py.
    """
    _check_tiled(q, k, v, mask, block_size)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    qg, kg, vg = _group(q, k, v)  # (N, G, T_q, d_k), (N, T_k, d_k), (N, T_k, d_v)
    tile_mask = _TileMask(mask, q.shape, qg.shape[:2])
    y = np.empty_like(q, shape=(*qg.shape[:3], v.shape[-1]))
    L = np.empty_like(q, shape=(*qg.shape[:3], 1))
    lowest = float(np.finfo(q.dtype).min)

    for heads, rows in _query_tiles(qg.shape, kg.shape[1], block_size):
        q_tile = fold_heads(qg[heads, :, rows] * scale, kg[heads])  # (n, G t_q, d_k)
        m = np.full_like(q_tile[..., :1], lowest)  # (n, G t_q, 1)
        total = np.zeros_like(m)
        a = np.zeros_like(q, shape=(*q_tile.shape[:-1], v.shape[-1]))  # (n, G t_q, d_v)
        for columns in _key_tiles(rows, qg.shape[2], kg.shape[1], block_size, causal):
            s = q_tile @ kg[heads, columns].swapaxes(-1, -2)  # (n, G t_q, t_k)
            _hide(s, tile_mask, heads, rows, columns, causal, kg.shape[1] - qg.shape[2])
            new_m = np.maximum(m, s.max(axis=-1, keepdims=True))
            s -= new_m
            w = np.exp(s, out=s)  # not yet divided by the total
            shrink = np.exp(m - new_m)
            total *= shrink
            total += sum_in_rows(w)
            a *= shrink
            a += w @ vg[heads, columns]
            m = new_m
        total = np.maximum(total, 1.0)  # at least exp(0) = 1 but for a query with nothing to see, whose a is 0
        a /= total
        y[heads, :, rows] = a.reshape(y[heads, :, rows].shape)
        L[heads, :, rows] = (m + np.log(total)).reshape(L[heads, :, rows].shape)

    y = y.reshape(*q.shape[:-1], v.shape[-1])
    return y, TiledAttentionCache(q, k, v, mask, y, L, causal, scale, block_size)


def tiled_attention_backward(dy: np.ndarray, cache: TiledAttentionCache) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of `tiled_attention`, tile by tile: ds = w (dy v^T - D), with w remade from L and D = rowsum(dy y).

    Shapes: dy (..., H_q, T_q, d_v) -> dq, dk, dv as q, k, v
    """
    q, k, v, mask, y, L, causal, scale, block_size = cache
    require_cotangent("tiled_attention_backward", "dy", dy, y.shape, y.dtype)
    qg, kg, vg = _group(q, k, v)
    tile_mask = _TileMask(mask, q.shape, qg.shape[:2])
    dyg = dy.reshape(*qg.shape[:3], v.shape[-1])  # (N, G, T_q, d_v)
    D = dot_in_rows(dyg, y.reshape(dyg.shape))  # (N, G, T_q, 1)
    dq, dk, dv = np.zeros_like(qg), np.zeros_like(kg), np.zeros_like(vg)

    for heads, rows in _query_tiles(qg.shape, kg.shape[1], block_size):
        q_tile, dy_tile, L_tile, D_tile = (
            fold_heads(x[heads, :, rows], kg[heads]) for x in (qg, dyg, L, D)
        )  # (n, G t_q, ...) each
        q_tile = q_tile * scale
        dq_tile = np.zeros_like(q_tile)
        for columns in _key_tiles(rows, qg.shape[2], kg.shape[1], block_size, causal):
            k_tile, v_tile = kg[heads, columns], vg[heads, columns]  # (n, t_k, d_k), (n, t_k, d_v)
            s = q_tile @ k_tile.swapaxes(-1, -2)  # (n, G t_q, t_k)
            _hide(s, tile_mask, heads, rows, columns, causal, kg.shape[1] - qg.shape[2])
            s -= L_tile
            w = np.exp(s, out=s)

            # y = w @ v
            dv[heads, columns] += w.swapaxes(-1, -2) @ dy_tile
            ds = dy_tile @ v_tile.swapaxes(-1, -2)  # for now dw
            # w = softmax(s)
            ds -= D_tile
            ds *= w
            # s = scale * q @ k^T
            dq_tile += ds @ k_tile
            dk[heads, columns] += ds.swapaxes(-1, -2) @ q_tile
        dq_tile *= scale
        dq[heads, :, rows] = dq_tile.reshape(dq[heads, :, rows].shape)
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def _group(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All leading axes as N key heads, each with the G query heads that share it (G = 1 unless grouped)."""
    N = math.prod(k.shape[:-2])
    G = math.prod(q.shape[:-2]) // max(N, 1)
    return q.reshape(N, G, *q.shape[-2:]), k.reshape(N, *k.shape[-2:]), v.reshape(N, *v.shape[-2:])


def _query_tiles(q_shape: tuple[int, ...], T_k: int, block_size: int) -> Iterator[tuple[slice, slice]]:
    """Which heads and which queries to take together: several heads at once where the texts are short."""
    N, G, T_q, _ = q_shape
    tile = min(block_size, T_q) * min(block_size, T_k) * G
    heads_at_once = max(1, _TILE_ELEMENTS // max(tile, 1))
    for head in range(0, N, heads_at_once):
        for row in range(0, T_q, block_size):
            yield slice(head, head + heads_at_once), slice(row, min(row + block_size, T_q))


def _key_tiles(rows: slice, T_q: int, T_k: int, block_size: int, causal: bool) -> Iterator[slice]:
    """The key tiles that any of these queries may look at."""
    end = min(T_k, rows.stop + T_k - T_q) if causal else T_k  # the last query of the tile stands at key end - 1
    for column in range(0, end, block_size):
        yield slice(column, min(column + block_size, end))


def _hide(
    s: np.ndarray, tile_mask: "_TileMask", heads: slice, rows: slice, columns: slice, causal: bool, offset: int
) -> None:
    """Set the scores of pairs that may not meet to -inf, for all G heads of each group."""
    s = s.reshape(s.shape[0], -1, rows.stop - rows.start, s.shape[-1])  # (n, G, t_q, t_k), a view
    if causal and columns.stop - 1 > rows.start + offset:  # else the whole tile lies in the past
        query_position = np.arange(rows.start, rows.stop, like=s)[:, None] + offset  # (t_q, 1)
        np.copyto(s, -np.inf, where=np.arange(columns.start, columns.stop, like=s) > query_position)
    if tile_mask.mask is not None:
        np.copyto(s, -np.inf, where=~tile_mask.take(heads, rows, columns))


class _TileMask:
    """Cuts a tile out of a mask without widening the mask to all heads, which could be larger than the scores."""

    def __init__(self, mask: np.ndarray | None, q_shape: tuple[int, ...], groups: tuple[int, ...]):
        self.mask = None
        if mask is None:
            return
        mask = mask.reshape((1,) * (len(q_shape) - mask.ndim) + mask.shape)  # as many axes as the scores
        own_lead = mask.shape[:-2]
        self.mask = mask.reshape(-1, *mask.shape[-2:])  # (M, T_q or 1, T_k or 1)
        which = np.arange(math.prod(own_lead), like=mask).reshape(own_lead)
        self.which = np.broadcast_to(which, q_shape[:-2]).reshape(groups)  # (N, G): the mask of each head

    def take(self, heads: slice, rows: slice, columns: slice) -> np.ndarray:
        assert self.mask is not None
        rows = rows if self.mask.shape[1] > 1 else slice(None)
        columns = columns if self.mask.shape[2] > 1 else slice(None)
        return self.mask[:, rows, columns][self.which[heads]]  # (n, G, t_q or 1, t_k or 1)


def _check_tiled(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, block_size: int) -> None:
    check_attention_arguments("tiled_attention", q, k, v, mask, None)
    if q.dtype == np.float16:
        raise dtype_error("tiled_attention", "q", "float32 or float64", q.dtype, "running sums need more than ten bits")
    if block_size < 1:
        raise value_error("tiled_attention", "block_size", "at least 1", block_size)
