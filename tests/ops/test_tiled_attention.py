"""Chapter 12: the attention of Chapter 6, for tiles of any size."""

import importlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numpy_attention as na
from numpy_attention.ops import c12a_tiles as tiles

B, H, d_k, d_v = 2, 6, 5, 3


def draw(rng: np.random.Generator, T_q: int, T_k: int, num_kv_heads: int = H, dtype: Any = np.float64) -> list[Any]:
    """Random q, k, v and a gradient of the result."""
    shapes = [(B, H, T_q, d_k), (B, num_kv_heads, T_k, d_k), (B, num_kv_heads, T_k, d_v), (B, H, T_q, d_v)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def assert_same_as_chapter_6(arrays: list[Any], mask: Any = None, plain_mask: Any = None, **options: Any) -> None:
    *qkv, dy = arrays
    y, cache = na.tiled_attention(*qkv, mask=mask, **options)
    scale = options.get("scale")
    plain_y, plain_cache = na.scaled_dot_product_attention(*qkv, mask=mask if plain_mask is None else plain_mask,
                                                           scale=scale)
    grads = na.tiled_attention_backward(dy, cache)
    plain_grads = na.scaled_dot_product_attention_backward(dy, plain_cache)[:3]
    rtol = 1e4 * float(np.finfo(y.dtype).eps)
    for found, expected in zip((y, *grads), (plain_y, *plain_grads), strict=True):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol / 10)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("block_size", [1, 2, 3, 7, 256])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
@pytest.mark.parametrize(("T_q", "T_k"), [(7, 7), (4, 9), (9, 4)])
def test_every_tile_size_gives_chapter_6_with_and_without_grouped_heads(
    rng: np.random.Generator, block_size: int, num_kv_heads: int, T_q: int, T_k: int
) -> None:
    arrays = draw(rng, T_q, T_k, num_kv_heads)
    mask = rng.random((B, 1, T_q, T_k)) < 0.7
    assert_same_as_chapter_6(arrays, mask, block_size=block_size, scale=0.7)
    causal = na.causal_mask(T_q, T_k)
    assert_same_as_chapter_6(arrays, None, causal, causal=True, block_size=block_size)
    assert_same_as_chapter_6(arrays, mask, mask & causal, causal=True, block_size=block_size)


@pytest.mark.parametrize("shape", [(5, 8), (1, 8), (5, 1), (B, 1, 1, 8), (H, 5, 8), (1, H, 5, 1)])
def test_masks_of_any_broadcast_shape_are_cut_into_tiles(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    mask = rng.random(shape) < 0.6
    assert_same_as_chapter_6(draw(rng, 5, 8, 2), mask, block_size=3)


def test_short_texts_compute_many_heads_in_one_tile(rng: np.random.Generator, monkeypatch: Any) -> None:
    arrays = draw(rng, 4, 5, dtype=np.float32)
    for elements in (1, 4 * 5 * 5, 2**17):  # one head at a time, five of twelve, all
        monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
        assert_same_as_chapter_6(arrays)


def test_a_query_with_nothing_to_see_gets_zeros_and_passes_zero_gradient(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng, 5, 8)
    mask = np.ones((5, 8), bool)
    mask[2] = False
    y, cache = na.tiled_attention(q, k, v, mask=mask, block_size=2)
    dq, dk, dv = na.tiled_attention_backward(dy, cache)
    assert not y[:, :, 2].any()
    assert not dq[:, :, 2].any()
    assert all(np.isfinite(grad).all() for grad in (dq, dk, dv))


@pytest.mark.parametrize("size", [(1, 4), (4, 1), (2, 5), (5, 3)])
def test_tiles_may_be_rectangles(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    chapter_12 = importlib.import_module("numpy_attention.ops.c12_tiled_attention")
    monkeypatch.setattr(chapter_12, "tile_size", lambda *_: tiles.TileSize(*size))
    arrays = draw(rng, 7, 9)
    assert_same_as_chapter_6(arrays, None)
    assert_same_as_chapter_6(arrays, None, na.causal_mask(7, 9), causal=True)
    assert_same_as_chapter_6(arrays, None, na.sliding_window_mask(7, 3, 9), causal=True, window=3)


def test_weights_can_be_recomputed_from_one_number_per_query(rng: np.random.Generator) -> None:
    q, k, v, _ = draw(rng, 5, 8)
    _, cache = na.tiled_attention(q, k, v, scale=1.0, block_size=3)
    weights = np.exp(q @ k.swapaxes(-1, -2) - cache.L.reshape(B, H, 5, 1))
    np.testing.assert_allclose(weights, na.scaled_dot_product_attention(q, k, v, scale=1.0)[1].weights)


def test_cache_holds_no_array_as_large_as_the_scores(rng: np.random.Generator) -> None:
    q, k, v = rng.standard_normal((3, 64, 4)).astype(np.float32)
    _, cache = na.tiled_attention(q, k, v, causal=True, block_size=16)
    assert max(field.size for field in cache if isinstance(field, np.ndarray)) < 64 * 64 / 8


def test_scores_of_a_thousand_do_not_overflow_or_vanish(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng, 5, 8, dtype=np.float32)
    with np.errstate(over="raise", invalid="warn"):
        assert_same_as_chapter_6([300.0 * q, k, v, dy], block_size=2)


def test_empty_arrays_stay_empty() -> None:
    y, cache = na.tiled_attention(np.ones((0, 3, 5)), np.ones((0, 4, 5)), np.ones((0, 4, 2)))
    assert y.shape == (0, 3, 2)
    assert [grad.shape for grad in na.tiled_attention_backward(y, cache)] == [(0, 3, 5), (0, 4, 5), (0, 4, 2)]


def test_refuses_empty_tiles() -> None:
    q = np.ones((3, 4))
    with pytest.raises(ValueError, match="tiled_attention: block_size must be at least 1, got 0"):
        na.tiled_attention(q, q, q, block_size=0)


def test_refuses_gradient_of_wrong_shape_or_dtype(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng, 5, 8, dtype=np.float32)
    _, cache = na.tiled_attention(q, k, v)
    with pytest.raises(ValueError, match=r"dy must be \(2, 6, 5, 3\)"):
        na.tiled_attention_backward(dy[:, :3], cache)
    with pytest.raises(TypeError, match="dy must be float32"):
        na.tiled_attention_backward(dy.astype(np.float64), cache)


@settings(max_examples=40, deadline=None, database=None)
@given(
    seed=st.integers(0, 2**16), T_q=st.integers(1, 13), T_k=st.integers(1, 13), groups=st.sampled_from([1, 2, 3]),
    block_size=st.integers(1, 14), window=st.sampled_from([None, 1, 2, 3, 7, 40]),
    ahead=st.sampled_from([None, 0, 1, 2, 5, 40]), causal=st.booleans(), alibi=st.booleans(),
    masked=st.sampled_from(["", "pairs", "keys", "heads"]),
    softcap=st.sampled_from([None, 0.7, 50.0]), sink=st.sampled_from([None, 0.0, 300.0, -300.0]),
    elements=st.sampled_from([1, 60, 2**17]),
)
def test_all_options_together_equal_chapter_6_with_mask_and_bias(
    seed: int, T_q: int, T_k: int, groups: int, block_size: int, window: int | None, ahead: int | None, causal: bool,
    alibi: bool, masked: str, softcap: float | None, sink: float | None, elements: int
) -> None:
    rng = np.random.default_rng(seed)
    q, k, v, dy = draw(rng, T_q, T_k, H // groups)
    shapes = {"pairs": (B, 1, T_q, T_k), "keys": (B, 1, 1, T_k), "heads": (H, T_q, T_k)}
    mask = rng.random(shapes[masked]) < 0.6 if masked else None
    if mask is not None:
        mask[..., rng.integers(mask.shape[-2]), :] = False  # a query that may look at nothing
    causal = causal or (window is not None and ahead is None)
    ahead = None if causal else ahead
    slopes = na.alibi_slopes(H) if alibi else None
    sinks = None if sink is None else sink + rng.standard_normal(H)
    before = tiles.TILE_ELEMENTS
    try:
        tiles.TILE_ELEMENTS = elements
        how: Any = {"block_size": block_size, "window": window, "slopes": slopes, "ahead": ahead}
        if softcap is None and sink is None:
            y, tiles_cache = na.tiled_attention(q, k, v, mask, causal, **how)
            grads = *na.tiled_attention_backward(dy, tiles_cache), None
        else:
            y, cache = na.tamed_tiled_attention(q, k, v, mask, causal, softcap=softcap, sink=sinks, **how)
            grads, tiles_cache = na.tamed_tiled_attention_backward(dy, cache), cache.tiles
    finally:
        tiles.TILE_ELEMENTS = before

    seen = np.ones((T_q, T_k), bool)
    if causal or ahead is not None:
        seen = na.sliding_window_mask(T_q, window or T_q + T_k, T_k, ahead or 0)
    dense_y, dense_cache = na.tamed_attention(
        q, k, v, seen if mask is None else seen & mask, na.alibi_bias(H, T_q, T_k, np.float64) if alibi else None,
        softcap=softcap, sink=sinks
    )
    dq, dk, dv, _, dsink = na.tamed_attention_backward(dy, dense_cache)
    for found, expected in zip((y, *grads), (dense_y, dq, dk, dv, dsink), strict=True):
        if expected is None:
            assert found is None
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(na.tiled_attention_weights(tiles_cache), dense_cache.weights, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", [
    {}, {"window": 300}, {"slopes": na.alibi_slopes(2)}
], ids=["causal", "window", "slopes"])
def test_no_option_needs_an_array_of_all_pairs(options: Any) -> None:
    T = 4096
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, 2, T, 8)).astype(np.float32)
    tracemalloc.start()
    _, cache = na.tiled_attention(q, k, v, causal=True, **options)
    na.tiled_attention_backward(dy, cache)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < T * T * 4 / 8


def test_refuses_invalid_options_by_name() -> None:
    q = np.ones((2, 3, 4))
    for options, words in (
        ({"window": 0, "causal": True}, "window must be at least 1, got 0"),
        ({"window": 2}, "ahead must be a number with a window, got None; how many later keys does a query see"),
        ({"window": 2, "ahead": -1}, "ahead must be at least 0, got -1"),
        ({"ahead": 1, "causal": True}, "ahead must be 0 or None with causal=True, got 1"),
        ({"slopes": np.ones(3)}, r"slopes must be \(H_q,\) with H_q = 2 .*, got \(3,\); use alibi_slopes"),
    ):
        with pytest.raises(ValueError, match=f"tiled_attention: {words}"):
            na.tiled_attention(q, q, q, **options)
    with pytest.raises(TypeError, match="tiled_attention: slopes must be an array of floats, got int64"):
        na.tiled_attention(q, q, q, slopes=np.ones(2, int))
    with pytest.raises(ValueError, match="with slopes, q needs an axis of heads"):
        na.tiled_attention(q[0], q[0], q[0], slopes=np.ones(1))
