"""Attention in little memory (Chapter 12): tiles of any size, with mask, window and ALiBi."""

from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.catalogue.entry import Array, Entry, op_entry
from numpy_attention.catalogue.exercise import Exercise, Try, peak_memory
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.catalogue.pages.attention import GROUPED, GROUPS, ONE_HEAD, QKV, REFUSED, plain_attention
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.tiled_attention import TiledAttentionCache, tiled_attention_backward
from numpy_attention.ops.tiles import Band, key_tiles, query_tiles

CHAPTER = 12

SQUARE = "q: B H T d_k, k: B H T d_k, v: B H T d_v"
NO_BATCH = "q: H T_q d_k, k: H T_k d_k, v: H T_k d_v"


def _entry(spec: str, variant: str, wrong: str = "", alibi: bool = False, **options: Any) -> Entry:
    def with_slopes(sizes: Sizes) -> dict[str, Any]:
        heads = [sizes[name] for name in ("H", "G", "H_kv") if name in sizes]  # H_q = G H_kv
        return {**options, "slopes": ops.alibi_slopes(int(np.prod(heads)))}

    return op_entry("tiled_attention", spec, variant, options=with_slopes if alibi else options, wrong=wrong)


ENTRIES = (
    _entry(QKV, "one tile", wrong=REFUSED),
    _entry(QKV, "tiles of 2", block_size=2),
    _entry(NO_BATCH + ", sink: H", "softcap, sink, no batch", "sink+0 sink:float32", block_size=2, softcap=0.8),
    _entry(QKV + ", mask: bool T_q T_k", "mask, tiles of 1", block_size=1, wrong="mask+0 mask:int64"),
    _entry(SQUARE, "window in both directions, tiles of 2", block_size=2, window=2, ahead=1),
    _entry(QKV + ", mask: bool B H T_q T_k", "mask of each head, tiles of 3", block_size=3),
    _entry(QKV, "causal, tiles of 2", block_size=2, causal=True),
    _entry(SQUARE, "causal square, tiles of 3", block_size=3, causal=True),
    _entry(QKV + ", mask: bool B 1 T_q T_k", "causal and mask, tiles of 2", block_size=2, causal=True),
    _entry(ONE_HEAD, "no leading axes, scale", block_size=2, scale=0.4),
    _entry(ONE_HEAD + ", mask: bool T_q T_k", "no leading axes, mask", block_size=2),
    _entry("q: H T_q d_k, k: H 2 d_k, v: H 2 d_v, mask: bool H 1 2", "padding mask, tiles of 1", block_size=1),
    _entry("q: H 2 d_k, k: H T_k d_k, v: H T_k d_v, mask: bool H 2 1", "mask of queries, tiles of 1", block_size=1),
    _entry(GROUPED + ", mask: bool T_q T_k" + GROUPS, "grouped heads and mask, tiles of 2", block_size=2),
    _entry(SQUARE, "window of 2", block_size=3, causal=True, window=2),
    _entry(QKV + ", mask: bool T_q T_k", "window and mask, tiles of 2", block_size=2, causal=True, window=3),
    _entry(QKV, "ALiBi, tiles of 2", alibi=True, block_size=2),
    _entry(SQUARE, "ALiBi, causal", alibi=True, block_size=3, causal=True),
    _entry(
        GROUPED + ", mask: bool B 1 T_q T_k" + GROUPS, "grouped heads, causal, all at once", alibi=True,
        block_size=2, causal=True, window=3
    ),
    _entry(
        GROUPED + ", mask: bool B 1 T_q T_k, sink: H_q" + GROUPS, "grouped heads, softcap, sink, window", alibi=True,
        block_size=2, window=2, ahead=2, softcap=1.5
    ),
)


PLAIN = {"tiled_attention": plain_attention}


@backward_of("tiled_attention", diagnosis="a factor that differs from row to row, such as 1/length, 1/sum")
def rescaled_sum_forgotten(dy: Array, cache: TiledAttentionCache) -> Any:
    """L is the log of the sum without the maximum, so the recomputed weights are too small by exp(-m).

    Hides: nearly right while all scores are near zero, as before training.
    """
    heads = cache.q.reshape(*cache.L.shape[:3], -1)
    keys = cache.k.reshape(cache.L.shape[0], 1, *cache.k.shape[-2:])
    scores = heads @ keys.swapaxes(-1, -2) * cache.scale  # (N, G, T_q, T_k)
    return tiled_attention_backward(dy, cache._replace(L=cache.L + np.maximum(scores.max(axis=-1, keepdims=True), 0.0)))


@backward_of("tiled_attention", diagnosis="is `- sum(dy * w)` missing")
def row_sum_left_out(dy: Array, cache: TiledAttentionCache) -> Any:
    """The row sum of the softmax, D = sum(dy * y), is missing in dscores.

    Hides: dv is right, and the loss still falls.
    """
    return tiled_attention_backward(dy, cache._replace(y=np.zeros_like(cache.y)))


@backward_of("tiled_attention", diagnosis="a block overwrites a sum to which it must add")
def last_tile_only(dy: Array, cache: TiledAttentionCache) -> Any:
    """The next tile of keys overwrites dq of a tile instead of adding to it.

    Hides: right if a single tile holds all keys.
    """
    _, *others = tiled_attention_backward(dy, cache)
    T_q, T_k = cache.q.shape[-2], cache.k.shape[-2]
    last = np.zeros((T_q, T_k), bool)
    for rows in query_tiles(T_q, cache.tile):
        for columns in key_tiles(rows, T_q, T_k, cache.tile, cache.band):
            last[rows] = False
            last[rows, columns] = True
    mask = last if cache.mask is None else last & cache.mask
    return tiled_attention_backward(dy, cache._replace(mask=mask))[0], *others


@backward_of("tiled_attention", diagnosis="the backward must apply the mask too")
def tile_mask_left_out(dy: Array, cache: TiledAttentionCache) -> Any:
    """The recomputed scores are not masked again, so gradient leaks into hidden keys.

    Hides: the test has no mask; causal tiles that are skipped completely hide most of the mistake.
    """
    return tiled_attention_backward(dy, cache._replace(mask=None, band=Band(slopes=cache.band.slopes)))


@backward_of("tiled_attention", diagnosis="does the backward use a different formula than the forward")
def distance_forgotten(dy: Array, cache: TiledAttentionCache) -> Any:
    """The backward recomputes the scores without ALiBi's distances, as if a term without a gradient did not matter.

    Hides: the test has no slopes.
    """
    return tiled_attention_backward(dy, cache._replace(band=cache.band._replace(slopes=None)))


@backward_of("tiled_attention", diagnosis="a factor that differs from row to row, such as 1/length, 1/sum")
def sink_left_out_of_L(dy: Array, cache: TiledAttentionCache) -> Any:
    """L is the log of the sum without the sink, so the recomputed weights sum to one instead of 1 - p.

    Hides: y is right, because the forward includes the sink; right without a sink, or if the sink is far below L.
    """
    if cache.sink is None:
        return tiled_attention_backward(dy, cache)
    L = cache.L.reshape(*cache.q.shape[:-1], 1)
    p = np.minimum(np.exp(cache.sink[:, None, None] - L), 1 - np.finfo(L.dtype).eps)  # the weight of the sink
    return tiled_attention_backward(dy, cache._replace(L=(L + np.log1p(-p)).reshape(cache.L.shape)))


@backward_of("tiled_attention", diagnosis="uses elements that the forward hides")
def window_one_key_too_long(dy: Array, cache: TiledAttentionCache) -> Any:
    """The backward lets a query see one more key ahead than the forward, as if `ahead` did not count the last key.

    Hides: right for causal windows, and every row differs in one key only.
    """
    if cache.band.ahead is not None:
        cache = cache._replace(band=cache.band._replace(ahead=cache.band.ahead + 1))
    return tiled_attention_backward(dy, cache)


@backward_of("tiled_attention", diagnosis="dq is wrong only in places 0 to 3 along axis 2")
def keys_ahead_forgotten(dy: Array, cache: TiledAttentionCache) -> Any:
    """The window lets a query see keys ahead, but the backward reads the window of a causal model.

    Hides: right for causal windows; the last query has no keys ahead.
    """
    if cache.band.ahead is not None:
        cache = cache._replace(band=cache.band._replace(ahead=0))
    return tiled_attention_backward(dy, cache)


def no_square_array(module: Any) -> None:
    """Checks that forward and backward of 1200 tokens in tiles of 60 need much less memory than a 1200 x 1200 array."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1200, 4))
    y, cache = module.tiled_attention(q, k, v, block_size=60)
    peak = peak_memory(module.tiled_attention_backward, rng.standard_normal(y.shape), cache)
    assert peak < 1200 * 1200 * 8 / 2, (
        f"the backward of 1200 tokens used up to {peak / 1e6:.1f} MB; an array of 1200 x 1200 has "
        f"{1200 * 1200 * 8 / 1e6:.1f} MB, a tile of 60 x 60 has 0.03 MB: do you build a whole T_q x T_k array?"
    )


EXERCISES = (
    Exercise("tiled_attention", 15, (
        Try("tiled_attention", ONE_HEAD, "tiles of 2", {"block_size": 2}),
        Try("tiled_attention", ONE_HEAD + ", mask: bool T_q T_k", "mask", {"block_size": 3}),
    ), memory=no_square_array, leave_out=(
        "distance_forgotten", "sink_left_out_of_L", "window_one_key_too_long", "keys_ahead_forgotten",
    )),
)
