"""Every model gives the same results in tiles as with all weights, without a T x T array in memory."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.models import c21a_config as configuration
from numpy_attention.ops.c12_tiled_attention import TiledAttentionCache

V, B, T, T_s = 7, 2, 6, 9
SIZES: dict[str, Any] = {"context_length": 12, "d_model": 8, "num_heads": 4, "num_layers": 2, "d_ff": 5}
GPTS: list[dict[str, Any]] = [
    {}, {"positions": "rotary", "num_kv_heads": 2}, {"positions": "alibi"}, {"positions": "alibi", "window": 2},
    {"positions": "sinusoidal", "window": 3, "num_kv_heads": 1},
]


def both(kind: type, rng: np.random.Generator, **sizes: Any) -> Any:
    """Two models with the same parameters: one with all attention weights at once, one in tiles."""
    models = [kind(kind.config_class(**SIZES, **sizes, attention=how), None, np.float64) for how in ("dense", "tiled")]
    for name, p in models[0].parameters().items():
        p[...] = rng.standard_normal(p.shape)
        models[1].parameters()[name][...] = p
    return models


def assert_same(models: Any, *batch: np.ndarray, **options: Any) -> None:
    (loss, cache), (tiled_loss, tiled_cache) = (model.loss(*batch, **options) for model in models)
    np.testing.assert_allclose(tiled_loss, loss, rtol=1e-12)
    grads, tiled_grads = models[0].backward(cache), models[1].backward(tiled_cache)
    for name, gradient in grads.items():
        np.testing.assert_allclose(tiled_grads[name], gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("config", GPTS)
def test_gpt_in_tiles_gives_the_same_results(rng: np.random.Generator, config: dict[str, Any]) -> None:
    models = both(na.GPT, rng, vocab_size=V, **config)
    ids, targets = rng.integers(0, V, (2, B, T))
    assert_same(models, ids, targets)
    dense, tiled = (model.attention_weights(ids) for model in models)
    for name, weights in dense.items():
        np.testing.assert_allclose(tiled[name], weights, rtol=1e-10, atol=1e-14)


def test_encoder_decoder_in_tiles_gives_the_same_results(rng: np.random.Generator) -> None:
    models = both(na.Seq2Seq, rng, source_vocab_size=V, target_vocab_size=V)
    source, target, targets = rng.integers(0, V, (B, T_s)), *rng.integers(0, V, (2, B, T))
    lengths = {"source_lengths": np.array([4, 9]), "target_lengths": np.array([6, 2])}
    assert_same(models, source, target, targets, **lengths)
    _, cache = models[1].forward(source, target)
    blocks = [*cache.encoder.stack.stack.blocks, *cache.decoder.stack.stack.blocks]
    residuals = [block.attention for block in blocks] + [block.cross_attention for block in blocks]
    caches = [residual.sublayer.attention for residual in residuals if residual is not None]
    assert len(caches) == 6
    assert all(isinstance(found, TiledAttentionCache) for found in caches)
    dense, tiled = (model.attention_weights(source, target, **lengths) for model in models)
    for name, weights in dense.items():
        np.testing.assert_allclose(tiled[name], weights, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("config", GPTS)
def test_prompt_in_tiles_is_continued_with_the_kv_cache(rng: np.random.Generator, config: dict[str, Any]) -> None:
    dense, tiled = both(na.GPT, rng, vocab_size=V, **config)
    ids = rng.integers(0, V, (1, 9))
    expected, _ = dense.forward(ids)
    past = [KeyValueCache(9) for _ in tiled.blocks]
    found = [tiled.forward(ids[:, a:b], past=past)[0] for a, b in ((0, 4), (4, 7), (7, 8), (8, 9))]
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-9, atol=1e-11)
    prompts = [ids[0, :5], ids[0, :2]]
    for a, b in zip(*(model.generate(prompts, 5, temperature=0.0) for model in (dense, tiled)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_auto_uses_all_weights_on_a_gpu() -> None:
    config = na.GPTConfig(V, **SIZES)
    on_a_gpu: Any = SimpleNamespace(dtype=np.dtype(np.float32))
    assert config.in_tiles(np.zeros(1, np.float32), configuration.TILES_FROM)
    assert not config.in_tiles(on_a_gpu, configuration.TILES_FROM)


def test_dropout_needs_all_weights(rng: np.random.Generator) -> None:
    """Attention in tiles has no dropout: "auto" does not use tiles, and "tiled" or a band is an error."""
    config = na.GPTConfig(V, **SIZES, dropout=0.1)
    assert not config.in_tiles(np.zeros(1, np.float32), configuration.TILES_FROM)
    with pytest.raises(ValueError, match=r'GPTConfig: dropout must be 0 with attention="tiled", got 0\.1; "auto" and'):
        na.GPTConfig(V, **SIZES, dropout=0.1, attention="tiled")
    layer, x = na.MultiHeadAttention(4, 2, rng, dropout=0.1), np.ones((1, 3, 4), np.float32)
    layer.forward(x, band=na.Band())
    with pytest.raises(ValueError, match=r"MultiHeadAttention: dropout must be 0 in training with a band, got 0\.1"):
        layer.forward(x, band=na.Band(), rng=rng)


def test_refuses_an_unknown_attention() -> None:
    with pytest.raises(ValueError, match="GPTConfig: attention must be one of auto, dense, tiled, got 'flash'"):
        na.GPTConfig(V, 12, 8, 2, 1, attention="flash")


def test_attention_weights_of_one_layer_by_name(rng: np.random.Generator) -> None:
    for model in both(na.GPT, rng, vocab_size=V):
        ids = rng.integers(0, V, (B, T))
        whole = model.attention_weights(ids)
        for layers in ("blocks.1.attention", ["blocks.1.attention"]):
            found = model.attention_weights(ids, layers)
            assert list(found) == ["blocks.1.attention"]
            np.testing.assert_array_equal(found["blocks.1.attention"], whole["blocks.1.attention"])
        with pytest.raises(ValueError, match=r"layers must be among blocks\.0\.attention, .*, got 'blocks\.2'"):
            model.attention_weights(ids, "blocks.2")


@pytest.mark.parametrize("config", [{}, {"positions": "alibi", "window": 100}])
def test_gpt_in_tiles_never_holds_a_T_by_T_array(rng: np.random.Generator, config: dict[str, Any]) -> None:
    T = 2000
    sizes: dict[str, Any] = {"vocab_size": 5, "context_length": T, "d_model": 4, "num_heads": 2, "num_layers": 1}
    model = na.GPT(na.GPTConfig(**sizes, attention="tiled", **config), rng)
    ids = rng.integers(0, 5, (1, T + 1))
    tracemalloc.start()
    model.backward(model.loss(ids[:, :-1], ids[:, 1:])[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < T * T  # bytes: less than one boolean mask (T, T)
