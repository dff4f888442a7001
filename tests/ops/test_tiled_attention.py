"""Chapter 12: the attention of Chapter 6, whatever the tiles."""

import importlib
from typing import Any

import numpy as np
import pytest

import numpy_attention as na

chapter = importlib.import_module("numpy_attention.ops.tiled_attention")
B, H, d_k, d_v = 2, 6, 5, 3


def draw(rng: np.random.Generator, T_q: int, T_k: int, num_kv_heads: int = H, dtype: Any = np.float64) -> list[Any]:
    """q, k, v and a gradient of the result."""
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
    for ours, theirs in zip((y, *grads), (plain_y, *plain_grads), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol / 10)
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("block_size", [1, 2, 3, 7, 256])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
@pytest.mark.parametrize(("T_q", "T_k"), [(7, 7), (4, 9), (9, 4)])
def test_every_size_of_tile_gives_chapter_6_also_for_grouped_heads(
    rng: np.random.Generator, block_size: int, num_kv_heads: int, T_q: int, T_k: int
) -> None:
    arrays = draw(rng, T_q, T_k, num_kv_heads)
    mask = rng.random((B, 1, T_q, T_k)) < 0.7
    assert_same_as_chapter_6(arrays, mask, block_size=block_size, scale=0.7)
    causal = na.causal_mask(T_q, T_k)
    assert_same_as_chapter_6(arrays, None, causal, causal=True, block_size=block_size)
    assert_same_as_chapter_6(arrays, mask, mask & causal, causal=True, block_size=block_size)


@pytest.mark.parametrize("shape", [(5, 8), (1, 8), (5, 1), (B, 1, 1, 8), (H, 5, 8), (1, H, 5, 1)])
def test_a_mask_is_cut_into_tiles_however_it_is_broadcast(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    mask = rng.random(shape) < 0.6
    assert_same_as_chapter_6(draw(rng, 5, 8, 2), mask, block_size=3)


def test_many_heads_share_a_tile_where_texts_are_short(rng: np.random.Generator, monkeypatch: Any) -> None:
    arrays = draw(rng, 4, 5, dtype=np.float32)
    for elements in (1, 4 * 5 * 5, 2**17):  # one head at a time, five of twelve, all
        monkeypatch.setattr(chapter, "_TILE_ELEMENTS", elements)
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


def test_every_weight_can_be_made_again_from_one_number_a_query(rng: np.random.Generator) -> None:
    q, k, v, _ = draw(rng, 5, 8)
    _, cache = na.tiled_attention(q, k, v, scale=1.0, block_size=3)
    weights = np.exp(q @ k.swapaxes(-1, -2) - cache.L.reshape(B, H, 5, 1))
    np.testing.assert_allclose(weights, na.scaled_dot_product_attention(q, k, v, scale=1.0)[1].weights)


def test_nothing_in_the_cache_is_as_large_as_the_scores(rng: np.random.Generator) -> None:
    q, k, v = rng.standard_normal((3, 64, 4)).astype(np.float32)
    _, cache = na.tiled_attention(q, k, v, causal=True, block_size=16)
    assert max(field.size for field in cache if isinstance(field, np.ndarray)) < 64 * 64 / 8


# OpenBLAS now and then flags a product of finite numbers (numpy issue 24067), for lanes that hold no number of ours; a
# NaN in a product of ours is not the same as Chapter 6.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")
def test_scores_of_a_thousand_neither_overflow_nor_vanish(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng, 5, 8, dtype=np.float32)
    with np.errstate(over="raise", invalid="warn"):
        assert_same_as_chapter_6([300.0 * q, k, v, dy], block_size=2)


def test_empty_arrays_stay_empty() -> None:
    y, cache = na.tiled_attention(np.ones((0, 3, 5)), np.ones((0, 4, 5)), np.ones((0, 4, 2)))
    assert y.shape == (0, 3, 2)
    assert [grad.shape for grad in na.tiled_attention_backward(y, cache)] == [(0, 3, 5), (0, 4, 5), (0, 4, 2)]


def test_half_precision_is_refused_as_a_type_and_a_tile_holds_something() -> None:
    q = np.ones((3, 4))
    with pytest.raises(TypeError, match="tiled_attention: q must be float32 or float64, got float16"):
        na.tiled_attention(*[q.astype(np.float16)] * 3)
    with pytest.raises(ValueError, match="tiled_attention: block_size must be at least 1, got 0"):
        na.tiled_attention(q, q, q, block_size=0)


def test_a_gradient_that_does_not_fit_the_result_is_refused(rng: np.random.Generator) -> None:
    q, k, v, dy = draw(rng, 5, 8, dtype=np.float32)
    _, cache = na.tiled_attention(q, k, v)
    with pytest.raises(ValueError, match=r"dy must be \(2, 6, 5, 3\)"):
        na.tiled_attention_backward(dy[:, :3], cache)
    with pytest.raises(TypeError, match="dy must be float32"):
        na.tiled_attention_backward(dy.astype(np.float64), cache)
