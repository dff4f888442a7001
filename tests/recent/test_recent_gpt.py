"""Options of models since 2023: QK-norm, gates, sinks, local and global blocks, blocks without positions."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.files import load_arrays, save_arrays
from numpy_attention.inside import direct_effects, forward_with, unembedding
from numpy_attention.training.restore import gpt_model
from tests.models.gradients import assert_gradients, randomized

V, T = 11, 7
CONFIG = na.RecentGPTConfig(
    V, 12, d_model=12, num_heads=4, num_layers=4, d_ff=5, num_kv_heads=2, positions="rotary", norm="rms_norm",
    activation="swiglu", bias=False, d_k=6, tie_weights=False,
)  # fmt: skip
LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LOCAL: dict[str, Any] = {"window": 3, "global_every": 2}
MODELS: dict[str, dict[str, Any]] = {
    "llama 3": {"rotary_scaling": LLAMA_3},
    "qwen 3": {"qk_norm": "head"},
    "olmo 2": {"qk_norm": "all", "branch_norm": True, "pre_norm": False},
    "gemma 3": LOCAL | {
        "qk_norm": "head", "branch_norm": True, "activation": "geglu", "embedding_scale": True, "attention_scale": 0.3,
        "local_rotary_base": 100.0, "rotary_scaling": {"type": "linear", "factor": 8.0}, "tie_weights": True},
    "smollm 3": {"nope_every": 2},
    "gpt-oss": LOCAL | {"sink": True, "rotary_scaling": YARN, "bias": True},
    "one gate for each head": {"output_gate": "head", "softcap": 1.5, "rotary_width": 2},
    "gates for each element": {"output_gate": "element", "qkv_bias": True},
    "ALiBi, local and global blocks": LOCAL | {"positions": "alibi", "sink": True},
    "global blocks without positions": LOCAL | {"nope_every": 2, "softcap": 2.0},
}  # fmt: skip


def test_each_block_gets_the_angles_of_its_kind() -> None:
    """Of four blocks, the second and the fourth are global; the third has no positions."""
    linear = {"type": "linear", "factor": 8.0}
    changes = {"rotary_base": 1e3, "rotary_scaling": linear, "local_rotary_base": 100.0, "rotary_width": 4}
    local = na.RecentGPT(dataclasses.replace(CONFIG, **LOCAL, **changes, nope_every=3), None)

    def angles(block: Any) -> tuple[Any, ...]:
        layer = block.attention
        return layer.rotary_base, layer.rotary_scaling, layer.rotary_width

    of_local, of_global = (100.0, None, 4), (1e3, linear, 4)
    assert [angles(block) for block in local.blocks] == [of_local, of_global, (None, None, None), of_global]
    plain = na.RecentGPT(dataclasses.replace(CONFIG, **LOCAL, **(changes | {"local_rotary_base": None})), None)
    assert [angles(block) for block in plain.blocks] == [of_global] * 4
    assert [plain.config.window_of(i) for i in range(4)] == [3, None, 3, None]


def gpt(rng: np.random.Generator, **changes: Any) -> na.RecentGPT:
    return randomized(na.RecentGPT(dataclasses.replace(CONFIG, **changes), rng, np.float64), rng)


def in_other_form(model: na.RecentGPT, **changes: Any) -> na.RecentGPT:
    """A model with other options and the same parameters."""
    other = na.RecentGPT(dataclasses.replace(model.config, **changes), None, np.float64)
    other.load_parameters(model.parameters())
    return other


@pytest.mark.parametrize("name", MODELS)
def test_every_gradient_agrees_with_central_differences(name: str, rng: np.random.Generator) -> None:
    model, (ids, targets) = gpt(rng, **MODELS[name]), rng.integers(0, V, (2, 2, T))
    assert_gradients(model, lambda: model.loss(ids, targets), rng)


@pytest.mark.parametrize("name", MODELS)
def test_no_position_sees_a_later_one(name: str, rng: np.random.Generator) -> None:
    model, ids = gpt(rng, **MODELS[name]), rng.integers(0, V, (2, T))
    changed = ids.copy()
    changed[:, 4:] = (ids[:, 4:] + 1) % V
    one, other = (model.forward(each)[0] for each in (ids, changed))
    np.testing.assert_allclose(one[:, :4], other[:, :4], rtol=1e-10, atol=1e-12)
    assert not np.allclose(one[:, 4:], other[:, 4:])


@pytest.mark.parametrize("name", MODELS)
def test_generation_with_the_cache_equals_generation_without(name: str, rng: np.random.Generator) -> None:
    model = gpt(rng, **MODELS[name])
    prompts = [rng.integers(0, V, length) for length in (5, 1, 3)]
    with_cache = model.generate(prompts, 11, temperature=0.0)  # beyond the context of 12 tokens
    without = model.generate(prompts, 11, temperature=0.0, use_cache=False)
    alone = [model.generate(prompt, 8 - len(prompt), temperature=0.0) for prompt in prompts]
    for one, other, single in zip(with_cache, without, alone, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one[:8], single)


@pytest.mark.parametrize("name", MODELS)
def test_tiles_and_recomputing_change_nothing(name: str, rng: np.random.Generator) -> None:
    dense = gpt(rng, **MODELS[name], attention="dense")
    tiled = in_other_form(dense, attention="tiled")
    ids, targets = rng.integers(0, V, (2, 2, T))
    loss, cache = dense.loss(ids, targets)
    grads, weights = dense.backward(cache), dense.attention_weights(ids)
    for recompute in (False, True):
        tiled.recompute = recompute
        tiled_loss, tiled_cache = tiled.loss(ids, targets)
        assert float(tiled_loss) == pytest.approx(float(loss), rel=1e-12)
        for key, gradient in tiled.backward(tiled_cache).items():
            np.testing.assert_allclose(gradient, grads[key], rtol=1e-9, atol=1e-12)
    for key, of_tiles in tiled.attention_weights(ids).items():
        np.testing.assert_allclose(of_tiles, weights[key], rtol=1e-10, atol=1e-13)


def test_only_global_blocks_see_beyond_the_window(rng: np.random.Generator) -> None:
    model, ids = gpt(rng, window=3, global_every=2), rng.integers(0, V, (1, T))
    near = na.sliding_window_mask(T, 3)
    for attention in ("dense", "tiled"):
        found = in_other_form(model, attention=attention).attention_weights(ids)
        for i in range(4):
            seen = (found[f"blocks.{i}.attention"] > 0).all(axis=(0, 1))
            np.testing.assert_array_equal(seen, near if i % 2 == 0 else na.causal_mask(T), err_msg=str(i))


def test_mask_replaces_the_causal_mask_but_not_the_window(rng: np.random.Generator) -> None:
    model, ids = gpt(rng, window=3, global_every=2), rng.integers(0, V, (1, T))
    mask = np.ones((T, T), dtype=bool)
    _, cache = model.forward(ids, mask=mask)
    local, anywhere = (cache.stack.blocks[i].attention.sublayer.weights() > 0 for i in (0, 1))
    assert anywhere.all()
    np.testing.assert_array_equal(local[0, 0], na.sliding_window_mask(T, 3))


def test_block_without_positions_does_not_know_the_order(rng: np.random.Generator) -> None:
    ids = np.array([[3, 1, 4, 5]])
    for every, knows in ((1, False), (None, True)):
        model = gpt(rng, num_layers=1, nope_every=every)
        one, other = (model.forward(each)[0][0, -1] for each in (ids, ids[:, [2, 0, 1, 3]]))
        assert np.allclose(one, other, rtol=1e-12) is not knows


def test_branch_norm_without_pre_norm_is_the_only_norm_of_a_block(rng: np.random.Generator) -> None:
    of_block = [name for name in gpt(rng, **MODELS["olmo 2"]).parameters() if name.startswith("blocks.0.")]
    names = [name for name in of_block if "norm" in name]
    ours = ["attention.norm_q", "attention.norm_k", "branch_norm_1", "branch_norm_2"]
    assert names == [f"blocks.0.{name}.gamma" for name in ours]


def test_direct_effects_with_gates_add_up_to_the_logits(rng: np.random.Generator) -> None:
    model, ids = gpt(rng, output_gate="head", qk_norm="head", sink=True), rng.integers(0, V, (2, T))
    logits, cache = forward_with(model, {}, ids)
    shares = direct_effects(model, cache.at, unembedding(model)[3])
    total = sum(share.sum(axis=1) if share.ndim == 3 else share for share in shares.values())
    np.testing.assert_allclose(total, logits[:, :, 3], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_k": 5}, "d_k must be even, got 5"),
        ({"rotary_width": 3}, "rotary_width must be even, got 3"),
        ({"rotary_width": 8}, r"rotary_width must be in \[2, 6\], got 8"),
        ({"rotary_width": 2, "positions": "learned"}, "rotary_width must be None without rotary positions, got 2"),
        ({"qk_norm": "heads"}, "qk_norm must be one of None, head, all, got 'heads'"),
        ({"qk_norm": "None"}, "qk_norm must be one of None, head, all"),
        ({"output_gate": True}, "output_gate must be one of None, head, element, got True"),
        ({"softcap": 0.0}, r"softcap must be in \[1e-30, 1e\+30\]"),
        ({"global_every": 2}, "global_every must be None without a window, got 2"),
        ({"local_rotary_base": 10.0}, "local_rotary_base must be None without rotary positions and a window"),
        ({"positions": "alibi", "nope_every": 2}, "nope_every must be None without rotary positions, got 2"),
        ({"rotary_scaling": {"type": "longrope", "factor": 2.0}}, r'scaling\["type"\] must be one of'),
        ({"rotary_scaling": {"type": "linear", "factor": 0.5}}, r'scaling\["factor"\] must be'),
        ({"nope_every": 0}, "nope_every must be at least 1, got 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_options(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)


@pytest.mark.parametrize("name", MODELS)
def test_checkpoint_restores_the_model(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    model, ids = gpt(rng, **MODELS[name]), rng.integers(0, V, (2, T))
    meta = {"model": json.loads(json.dumps(dataclasses.asdict(model.config)))}
    arrays = {f"parameters.{key}": p.astype(np.float32) for key, p in model.parameters().items()}
    save_arrays(tmp_path / "a.npz", arrays, {})
    restored = gpt_model(load_arrays(tmp_path / "a.npz")[0], meta)
    expected = model.forward(ids)[0]
    assert np.abs(restored.forward(ids)[0] - expected).max() <= 1e-4 * np.abs(expected).max()


def test_each_model_refuses_the_configuration_of_the_other() -> None:
    """A GPT would ignore the options of a RecentGPTConfig."""
    with pytest.raises(TypeError, match="GPT: config must be a GPTConfig, got RecentGPTConfig"):
        na.GPT(CONFIG, None)
    with pytest.raises(TypeError, match="RecentGPT: config must be a RecentGPTConfig, got GPTConfig"):
        na.RecentGPT(na.GPTConfig(V, 12, d_model=12, num_heads=4, num_layers=4), None)


def test_a_recent_block_has_no_cross_attention() -> None:
    with pytest.raises(ValueError, match="RecentBlock: cross_attention must be False, got True"):
        na.RecentBlock(12, 3, 7, None, cross_attention=True)
