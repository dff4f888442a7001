"""Chapter 45: results of DeepSeek's layers, the absorbed form, what the KV cache stores, and refused calls."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.backend import to_host
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from tests.backend.strict_array import StrictBackend
from tests.layers.gradients import assert_gradients, randomized

LATENT = Path(__file__).parents[1] / "reference" / "latent.npz"
MASK = na.causal_mask(7)


def made(rng: np.random.Generator, **options: Any) -> na.LatentAttention:
    sizes = {"rank": 5, "d_nope": 3, "d_rope": 4, "d_v": 2, "q_rank": 8, "dtype": np.float64} | options
    return randomized(na.LatentAttention(6, 3, rng, **sizes), rng)


def from_published(arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of `transformers`, or with the prefix "d" their gradients, as parameters of this book."""
    of = {name: arrays[f"{prefix}{name}"].T for name in arrays if f"{prefix}{name}" in arrays}
    w_kv = of["kv_b_proj.weight"].reshape(5, 3, 3 + 2)  # (r, H, d_nope + d_v)
    found = {
        "w_uq": of.get("q_proj.weight", of.get("q_b_proj.weight")), "w_dkv": of["kv_a_proj_with_mqa.weight"],
        "gamma_kv": of["kv_a_layernorm.weight"], "w_uk": w_kv[:, :, :3].reshape(5, -1),
        "w_uv": w_kv[:, :, 3:].reshape(5, -1), "w_o": of["o_proj.weight"],
    }
    if "q_a_proj.weight" in of:
        found |= {"w_dq": of["q_a_proj.weight"], "gamma_q": of["q_a_layernorm.weight"]}
    return found


@pytest.mark.parametrize(("name", "q_rank"), [("v2", None), ("v3", 7)])
def test_results_and_gradients_equal_those_of_published_layers(name: str, q_rank: int | None) -> None:
    with np.load(LATENT) as stored:
        given = {key.removeprefix(f"{name}/"): stored[key] for key in stored if key.startswith(name)}
    layer = na.LatentAttention(6, 3, None, rank=5, d_nope=3, d_rope=4, d_v=2, q_rank=q_rank, dtype=np.float64)
    layer.load_parameters(from_published(given))
    y, cache = layer.forward(given["x"], na.causal_mask(5), given["positions"])
    np.testing.assert_allclose(y, given["y"], rtol=1e-12, atol=1e-14)
    dx, grads = layer.backward(given["dy"], cache)
    np.testing.assert_allclose(dx, given["dx"], rtol=1e-11, atol=1e-13)
    expected = from_published(given, "d")
    assert grads.keys() == expected.keys() == layer.parameters().keys()
    for key, gradient in grads.items():
        np.testing.assert_allclose(gradient, expected[key], rtol=1e-11, atol=1e-13, err_msg=key)


def test_gradients_with_a_fully_hidden_query_agree_with_central_differences(rng: np.random.Generator) -> None:
    x, mask = rng.standard_normal((2, 7, 6)), rng.random((2, 1, 7, 7)) < 0.6
    mask[1, 0, 2] = False
    assert_gradients(made(rng), (x,), {"mask": mask, "positions": rng.integers(0, 90, (2, 7))}, rng)


@pytest.mark.parametrize("q_rank", [None, 8])
@pytest.mark.parametrize("ends", [(7,), (1, 2, 3, 4, 5, 6, 7), (3, 4, 7)], ids=str)
def test_absorbed_form_in_steps_equals_the_plain_form(
    q_rank: int | None, ends: tuple[int, ...], rng: np.random.Generator
) -> None:
    layer, x = made(rng, q_rank=q_rank), rng.standard_normal((2, 7, 6))
    y, cache = layer.forward(x, MASK)
    past, parts, weights = na.KeyValueCache(9), [], []
    for start, end in zip((0, *ends), ends):
        part, attention = layer.forward(x[:, start:end], MASK[start:end, :end], past=past)
        parts.append(part)
        weights.append(np.pad(attention.weights, [(0, 0)] * 3 + [(0, 7 - end)]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), y, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.concatenate(weights, axis=2), cache.attention.weights, rtol=1e-12, atol=1e-14)


def test_absorbed_form_takes_positions_and_masks_of_each_sequence(rng: np.random.Generator) -> None:
    layer, x = made(rng), rng.standard_normal((2, 7, 6))
    positions = np.array([[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 4]])  # two columns of padding in the second row
    mask = MASK & (np.arange(7) >= np.array([0, 2])[:, None, None, None])  # (B, 1, T, T); padding sees no key
    y, _ = layer.forward(x, mask, positions)
    past = na.KeyValueCache(7)
    first, _ = layer.forward(x[:, :4], mask[:, :, :4, :4], positions[:, :4], past)
    rest, _ = layer.forward(x[:, 4:], mask[:, :, 4:], positions[:, 4:], past)
    np.testing.assert_allclose(np.concatenate([first, rest], axis=1), y, rtol=1e-12, atol=1e-14)
    assert not y[1, :2].any(), "a query without keys has the output zero"


def test_kv_cache_stores_only_the_latent_and_the_rotary_key(rng: np.random.Generator) -> None:
    layer, past = made(rng), na.KeyValueCache(8)
    layer.forward(rng.standard_normal((2, 7, 6)), MASK, past=past)
    assert past.k.nbytes + past.v.nbytes == 2 * 8 * (5 + 4) * 8  # B, capacity, r + d_rope, bytes of a number
    past.reorder(np.array([1, 1]))
    np.testing.assert_array_equal(past.k[0], past.k[1])


def test_scores_depend_on_distances_between_positions_only(rng: np.random.Generator) -> None:
    layer, x = made(rng), rng.standard_normal((2, 7, 6))
    here, there, spread = (layer.forward(x, MASK, p)[0] for p in (np.arange(7), np.arange(50, 57), 2 * np.arange(7)))
    np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-12)
    assert not np.allclose(spread, here)


def test_absorbed_form_follows_the_rules_of_a_device(rng: np.random.Generator) -> None:
    layer, x = made(rng), rng.standard_normal((2, 7, 6))
    expected, _ = layer.forward(x, MASK)
    strict, past = StrictBackend(), na.KeyValueCache(7)
    layer.to(strict)
    for a, b in ((0, 4), (4, 7)):
        part, _ = layer.forward(strict.asarray(x[:, a:b]), strict.asarray(MASK[a:b, :b]), past=past)
        np.testing.assert_allclose(to_host(part), expected[:, a:b], rtol=1e-12)


def test_a_step_makes_no_keys_and_values_of_the_heads(rng: np.random.Generator) -> None:
    layer, past = na.LatentAttention(8, 16, rng, rank=4, d_nope=32, d_rope=2), na.KeyValueCache(4001)
    stored = np.zeros((1, 1, 4000, 6), np.float32)
    past.append(stored, stored[..., :0])
    tracemalloc.start()
    layer.forward(np.ones((1, 1, 8), np.float32), past=past)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4000 * 16 * 32 * 4 / 4, "a quarter of the keys of 16 heads"


@pytest.mark.parametrize(("options", "message"), [
    ({"d_rope": 3}, "d_rope must be even, got 3"),
    ({"rank": 0}, "rank must be at least 1"),
    ({"q_rank": 0}, "q_rank must be at least 1"),
    ({"d_v": -1}, "d_v must be at least 1"),
    ({"rotary_base": 0.0}, "rotary_base must be"),
], ids=str)
def test_refuses_invalid_sizes(options: dict[str, Any], message: str) -> None:
    right = {"d_model": 6, "num_heads": 3, "rng": None, "rank": 5, "d_nope": 3, "d_rope": 4}
    with pytest.raises(ValueError, match=f"LatentAttention: {message}"):
        na.LatentAttention(**{**right, **options})


def test_refuses_backward_through_a_kv_cache(rng: np.random.Generator) -> None:
    layer = made(rng)
    y, cache = layer.forward(rng.standard_normal((2, 7, 6)), past=na.KeyValueCache(7))
    with pytest.raises(ValueError, match="there is no backward through a KV cache; leave `past` out"):
        layer.backward(y, cache)


def test_refuses_more_tokens_than_the_kv_cache_holds(rng: np.random.Generator) -> None:
    layer, past = made(rng), na.KeyValueCache(7)
    layer.forward(rng.standard_normal((2, 6, 6)), past=past)
    with pytest.raises(ValueError, match="at most 7 positions, got 8"):
        layer.forward(rng.standard_normal((2, 2, 6)), past=past)


def test_initial_weights_have_the_scale_of_glorot(rng: np.random.Generator) -> None:
    layer = na.LatentAttention(64, 8, rng, rank=32, d_nope=16, d_rope=8, q_rank=48)
    found = {"w_dq": (64, 48), "w_uq": (48, 24), "w_dkv": (64, 40), "w_uk": (32, 16), "w_uv": (32, 16)}
    for name, widths in (found | {"w_o": (128, 64)}).items():
        assert layer.parameters()[name].std() == pytest.approx(np.sqrt(2 / sum(widths)), rel=0.05), name


@pytest.mark.parametrize("past", [None, KeyValueCache(9)], ids=["without", "with a KV cache"])
def test_refuses_an_input_without_a_batch(past: KeyValueCache | None) -> None:
    layer = na.LatentAttention(6, 2, np.random.default_rng(0), 4, 3, 2)
    with pytest.raises(ValueError, match=r"x must be \(B, T, d_model\), got \(5, 6\); for one sequence, pass x"):
        layer.forward(np.zeros((5, 6), np.float32), past=past)
