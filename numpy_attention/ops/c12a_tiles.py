"""Chapter 12, appendix. The tiles: which tiles exist, how a band acts on them, and the loop over all of them

If the positions alone decide which pairs are visible, no T x T mask is needed. Let p = i + T_k - T_q be the position of
query i among the keys. (The last query and the last key have the same position, as in Chapters 4 and 8.) A Band has
four fields:

    causal     key j is visible if j <= p
    ahead      key j is visible if j <= p + ahead: the window of an encoder. causal is the case ahead = 0
    window     key j must also have j > p - window, so the number of tiles grows with T, not with T^2
    slopes     each score of head h is lowered by slope_h times the distance of j from p (ALiBi, Chapter 8)

All four are applied to one tile at a time. With a window, the tiles of keys begin at the first key that a query of the
current tile sees, and end at the last one.

Heads are independent of each other. So `forward_in_tiles` and `backward_in_tiles` take several heads together if their
tiles are small, and may share the heads among threads (Chapter 30).
"""

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.ops.c01a_sums import dot_in_rows
from numpy_attention.ops.c06b_shared_heads import fold_heads
from numpy_attention.threads import lent_threads, share

TILE_ELEMENTS = 2**17  # scores computed at a time: half a megabyte in float32, which fits into a fast cache
FEW_SCORES = 2**16  # to compute so few scores takes less time than to wake up a second thread and to wait for it


class Band(NamedTuple):
    """The part of attention that depends only on positions: which pairs are visible, and the penalty for distance.

    A layer or model with a Band attends in tiles (Chapter 12). `Band()` lets every query see every key.

    Shapes: slopes (H_q,) or None; it is a constant and gets no gradient

    Units: window counts keys, including the key at the query's own position; ahead counts later keys; slopes in nats
    per token.

    >>> Band(window=128, ahead=127).last_ahead, Band(causal=True).last_ahead
    (127, 0)
    """

    causal: bool = False
    window: int | None = None  # only with causal or ahead
    slopes: np.ndarray | None = None
    ahead: int | None = None

    @property
    def last_ahead(self) -> int:
        """How many keys after its own position a query sees; without a limit, the largest integer."""
        return 0 if self.causal else sys.maxsize if self.ahead is None else self.ahead


class TileSize(NamedTuple):
    """The number of queries and of keys in one tile."""

    queries: int
    keys: int


def tile_size(block_size: int | None, T_k: int, band: Band) -> TileSize:
    """Square tiles of block_size, or by default the fastest tiles: they are large, since many small calls cost time.

    Causal tiles have fewer queries: half of the queries x queries scores on the diagonal are hidden, but computed.
    """
    if block_size is not None:
        return TileSize(int(block_size), int(block_size))
    if not band.causal and band.ahead is None:
        return TileSize(512, 512)
    return TileSize(128 if T_k <= 2048 else 256, 512)


def head_tiles(q_shape: tuple[int, ...], T_k: int, tile: TileSize) -> Iterator[slice]:
    """Which key heads of q (N, G, T_q, d_k) to compute together: several, if their tiles are small.

    Each call of NumPy then has more work. With several threads (`threads.py`), each gets the same number of parts, the
    larger parts first, unless there is little work, for example for one new token.
    """
    N, G, T_q, _ = q_shape
    elements = min(tile.queries, T_q) * min(tile.keys, T_k) * G
    most = max(1, TILE_ELEMENTS // max(elements, 1))
    threads = lent_threads() if N * elements > FEW_SCORES else 1
    parts = min(N, threads * math.ceil(N / (threads * most)))
    size, larger = divmod(N, max(parts, 1))  # the first `larger` parts have one head more
    for i in range(parts):
        yield slice(i * size + min(i, larger), (i + 1) * size + min(i + 1, larger))


def query_tiles(T_q: int, tile: TileSize) -> Iterator[slice]:
    """Which queries to compute together."""
    for row in range(0, T_q, tile.queries):
        yield slice(row, min(row + tile.queries, T_q))


def key_tiles(rows: slice, T_q: int, T_k: int, tile: TileSize, band: Band) -> Iterator[slice]:
    """The tiles of keys for the queries in `rows`, without tiles that none of these queries may see."""
    first = 0
    end = min(T_k, rows.stop + T_k - T_q + band.last_ahead)  # the last query of the tile sees key end - 1
    if band.window is not None:
        first = max(0, rows.start + T_k - T_q - band.window + 1)  # the farthest key that the first query sees
    for column in range(first, end, tile.keys):
        yield slice(column, min(column + tile.keys, end))


class Pairs:
    """The mask and the band, applied to the scores of one tile at a time.

    Only the part of the mask for one tile is read. The mask is not copied for every head: the copies could be
    larger than the scores.
    """

    def __init__(self, mask: np.ndarray | None, band: Band, q: np.ndarray, k: np.ndarray) -> None:
        N = math.prod(k.shape[:-2])
        groups = N, math.prod(q.shape[:-2]) // max(N, 1)  # the key heads, and the query heads that share each of them
        self.band = band
        self.offset = k.shape[-2] - q.shape[-2]
        self.mask = self.slopes = None
        if band.slopes is not None:
            self.slopes = np.broadcast_to(band.slopes.astype(q.dtype), q.shape[:-2]).reshape(groups)  # (N, G)
        if mask is not None:
            mask = mask.reshape((1,) * (q.ndim - mask.ndim) + mask.shape)  # as many axes as the scores
            leading = mask.shape[:-2]
            self.mask = mask.reshape(math.prod(leading), *mask.shape[-2:])  # (M, T_q or 1, T_k or 1)
            indices = np.arange(math.prod(leading), like=mask).reshape(leading)
            self.mask_index = np.broadcast_to(indices, q.shape[:-2]).reshape(groups)  # (N, G): for each head

    def forward(self, heads: slice, rows: slice, columns: slice, scores: np.ndarray) -> np.ndarray:
        """Lower the scores by distance, and set the scores of hidden pairs to -inf, for all G heads of a group.

        The band adds constants to the scores, so a gradient passes it unchanged; where a score is -inf, it is 0.

        Shapes: scores (n, G t_q, t_k), changed in place -> the same array
        """
        s = scores.reshape(scores.shape[0], -1, rows.stop - rows.start, scores.shape[-1])  # (n, G, t_q, t_k), a view
        p = np.arange(rows.start, rows.stop, dtype=np.int32, like=s)[:, None] + self.offset  # (t_q, 1), of the queries
        distance = p - np.arange(columns.start, columns.stop, dtype=np.int32, like=s)  # (t_q, t_k), < 0 in the future
        if self.slopes is not None:
            s -= self.slopes[heads][..., None, None] * np.abs(distance).astype(s.dtype)
        if columns.stop - 1 > rows.start + self.offset + self.band.last_ahead:  # the last key, for the first query
            np.copyto(s, -np.inf, where=distance < -self.band.last_ahead)
        if self.band.window is not None:
            np.copyto(s, -np.inf, where=distance >= self.band.window)
        if self.mask is not None:
            rows = rows if self.mask.shape[1] > 1 else slice(None)
            columns = columns if self.mask.shape[2] > 1 else slice(None)
            seen = self.mask[:, rows, columns][self.mask_index[heads]]  # (n, G, t_q or 1, t_k or 1)
            np.copyto(s, -np.inf, where=~seen)
        return scores


def forward_in_tiles(
    of_queries: Callable[..., tuple[np.ndarray, np.ndarray]], q: np.ndarray, k: np.ndarray, v: np.ndarray,
    pairs: Pairs, scale: float, tile: TileSize,
) -> tuple[np.ndarray, np.ndarray]:
    """Call `of_queries`, the online softmax, for every tile of queries; `pairs` changes the scores of a tile.

    Shapes: -> y (..., H_q, T_q, d_v), L (N, G, T_q, 1)
    """
    T_q, T_k = q.shape[-2], k.shape[-2]
    qg, kg, vg = group(q, k, v)  # (N, G, T_q, d_k), (N, T_k, d_k), (N, T_k, d_v)
    y = np.empty_like(q, shape=(*qg.shape[:3], v.shape[-1]))  # (N, G, T_q, d_v)
    L = np.empty_like(q, shape=(*qg.shape[:3], 1))

    def forward_of_heads(heads: slice) -> None:
        for rows in query_tiles(T_q, tile):
            q_tile = fold_heads(qg[heads, :, rows] * scale, kg[heads])  # (n, G t_q, d_k)
            tiles = key_tiles(rows, T_q, T_k, tile, pairs.band)
            y_tile, L_tile = of_queries(q_tile, kg[heads], vg[heads], tiles, partial(pairs.forward, heads, rows))
            y[heads, :, rows], L[heads, :, rows] = _unfold(y_tile, rows), _unfold(L_tile, rows)

    share(forward_of_heads, head_tiles(qg.shape, T_k, tile))
    return y.reshape(*q.shape[:-1], v.shape[-1]), L


def backward_in_tiles(
    of_queries: Callable[..., np.ndarray], dy: np.ndarray, cache: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Call `of_queries`, the backward of the online softmax, for every tile of queries; return dq, dk and dv."""
    q, k, v, y, L, pairs, scale, tile = cache
    T_q, T_k = q.shape[-2], k.shape[-2]
    qg, kg, vg = group(q, k, v)
    dyg = dy.reshape(*qg.shape[:3], v.shape[-1])  # (N, G, T_q, d_v)
    D = dot_in_rows(dyg, y.reshape(dyg.shape))  # (N, G, T_q, 1)
    dq, dk, dv = np.empty_like(qg), np.zeros_like(kg), np.zeros_like(vg)

    def backward_of_heads(heads: slice) -> None:
        for rows in query_tiles(T_q, tile):
            q_tile, dy_tile, L_tile, D_tile = (fold_heads(x[heads, :, rows], kg[heads]) for x in (qg, dyg, L, D))
            tiles = key_tiles(rows, T_q, T_k, tile, pairs.band)
            inputs = q_tile * scale, kg[heads], vg[heads], tiles, partial(pairs.forward, heads, rows)
            dq_tile = of_queries(dy_tile, L_tile, D_tile, *inputs, dk[heads], dv[heads])
            dq[heads, :, rows] = scale * _unfold(dq_tile, rows)

    share(backward_of_heads, head_tiles(qg.shape, T_k, tile))
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def group(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge all leading axes into N key heads; G query heads share each key head (G = 1 without grouping).

    Every tile of queries reads all keys and values, and reads them faster if the rows of a head are neighbours in
    memory. After `split_heads` they are not, so k and v are copied.
    """
    N = math.prod(k.shape[:-2])
    G = math.prod(q.shape[:-2]) // max(N, 1)
    k, v = np.asarray(k, order="C", like=k), np.asarray(v, order="C", like=v)
    return q.reshape(N, G, *q.shape[-2:]), k.reshape(N, *k.shape[-2:]), v.reshape(N, *v.shape[-2:])


def _unfold(x: np.ndarray, rows: slice) -> np.ndarray:
    """The inverse of `fold_heads` for a tile: (n, G t_q, d) -> (n, G, t_q, d)."""
    t_q = rows.stop - rows.start
    return x.reshape(len(x), x.shape[1] // t_q, t_q, x.shape[2])
