"""Chapter 39: heads built by hand have the expected scores; the copying score equals that of the full (V, V) map."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import inside


def model_of(rng: np.random.Generator, **config: object) -> na.GPT:
    sizes = {"d_model": 8, "num_heads": 4, "num_layers": 2, "d_ff": 5, **config}
    model = na.GPT(na.GPTConfig(11, 12, **sizes), rng, np.float64)
    for p in model.parameters().values():
        p += 0.5 * rng.standard_normal(p.shape)
    return model


def looking_back(distances: list[int], length: int) -> na.GPT:
    """A GPT of one block whose head h looks from t at t - distances[h], for all tokens."""
    width = 2 * length  # of a head: a query and a key with one element for each position
    config = na.GPTConfig(7, length, width * len(distances), len(distances), 1, d_ff=1, bias=False)
    model = na.GPT(config, None, np.float64)
    for p in model.parameters().values():
        p[...] = 0.0
    for name, p in model.parameters().items():
        if name.endswith("gamma"):
            p[...] = 1.0
    place = np.arange(length)
    model.position_embedding.table[place, place] = 1.0  # all rows have one mean, so the norm keeps them distinct
    attention = model.blocks[0].attention
    for h, distance in enumerate(distances):
        attention.w_k[place, h * width + place] = 100.0
        attention.w_q[place, h * width + np.maximum(place - distance, 0)] = 100.0
    return model


def test_previous_token_head_scores_1_and_other_heads_less() -> None:
    N = 4
    model, ids = looking_back([1, N - 1, 2], 2 * N), np.tile([[3, 1, 4, 1], [5, 2, 6, 5]], 2)
    assert list(inside.previous_token_scores(model, ids)) == ["blocks.0.attention"]
    scores = inside.previous_token_scores(model, ids)["blocks.0.attention"]
    # the other heads look at the previous token only from position 1
    np.testing.assert_allclose(scores, [1, 1 / 7, 1 / 7], atol=1e-9)


def test_prefix_matching_head_scores_1_and_other_heads_0() -> None:
    N = 4
    model, ids = looking_back([1, N - 1, 2], 2 * N), np.tile([[3, 1, 4, 1], [5, 2, 6, 5]], 2)
    np.testing.assert_allclose(inside.prefix_matching_scores(model, ids)["blocks.0.attention"], [0, 1, 0], atol=1e-9)


VARIANTS = [{}, {"num_kv_heads": 2, "tie_weights": False, "norm": "rms_norm"}, {"positions": "rotary"}]


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_copying_score_equals_eigenvalue_score_of_map_from_tokens_to_logits(
    rng: np.random.Generator, config: dict[str, object]
) -> None:
    """Build the (V, V) map from the layers: without its division and beta, a norm is linear."""
    model = model_of(rng, **config)
    table, kv_heads = model.token_embedding.table, model.blocks[0].attention.num_kv_heads

    def without_division(norm: object, x: np.ndarray) -> np.ndarray:
        normed = norm.forward(x)[0] - getattr(norm, "beta", 0.0)
        centred = x - x.mean(1, keepdims=True) if isinstance(norm, na.LayerNorm) else x
        return normed * np.sqrt((centred**2).mean(1, keepdims=True) + norm.eps)

    scores = inside.copying_scores(model)
    assert list(scores) == ["blocks.0.attention", "blocks.1.attention"]
    for i, block in enumerate(model.blocks):
        v = without_division(block.norm_1, table) @ block.attention.w_v
        for h in range(4):
            kv = h // (4 // kv_heads)
            answers = v[:, 2 * kv : 2 * kv + 2] @ block.attention.w_o[2 * h : 2 * h + 2]
            logits = without_division(model.norm, answers) @ (table.T if model.head is None else model.head.w)
            eigenvalues = np.linalg.eigvals(logits)
            expected = eigenvalues.sum().real / np.abs(eigenvalues).sum()
            np.testing.assert_allclose(scores[f"blocks.{i}.attention"][h], expected, atol=1e-6)


def test_copying_score_is_1_for_a_copying_head_and_minus_1_for_its_opposite(rng: np.random.Generator) -> None:
    model = model_of(rng, num_heads=2, num_layers=1)
    attention = model.blocks[0].attention
    model.norm.gamma[:] = model.blocks[0].norm_1.gamma[:] = 1.0
    attention.w_o[:4] = attention.w_v[:, :4].T
    attention.w_o[4:] = -attention.w_v[:, 4:].T
    np.testing.assert_allclose(inside.copying_scores(model)["blocks.0.attention"], [1.0, -1.0], rtol=1e-9)


def test_low_rank_layer_has_the_copying_score_of_its_merged_matrix(rng: np.random.Generator) -> None:
    model = model_of(rng)
    na.add_low_rank(model, 2, rng=rng)
    for block in model.blocks:
        for name in ("w_v", "w_o"):
            getattr(block.attention, name).b[:] = rng.standard_normal(getattr(block.attention, name).b.shape)
    scores = inside.copying_scores(model)
    na.merge_low_rank(model)
    for name, merged in inside.copying_scores(model).items():
        np.testing.assert_allclose(scores[name], merged, rtol=1e-9)


def test_refuses_models_and_ids_without_scores(rng: np.random.Generator) -> None:
    model, ids = model_of(rng), np.tile(rng.integers(0, 11, (3, 5)), 2)
    encoder = na.TextEncoder(na.TextEncoderConfig(11, 12, d_model=4, num_heads=2, num_layers=1), rng)
    weight_scores = inside.prefix_matching_scores, inside.previous_token_scores
    for score, *rest in ((weight_scores[0], ids), (weight_scores[1], ids), (inside.copying_scores,)):
        with pytest.raises(TypeError, match=f"{score.__name__}: model must be a GPT, got TextEncoder"):
            score(encoder, *rest)
    for score in weight_scores:
        with pytest.raises(TypeError, match="ids must be an integer array"):
            score(model, ids.astype(float))
        for invalid in (ids[0], ids[:, :1], ids[:0]):
            with pytest.raises(ValueError, match=r"ids must be \(B, T\) with T at least 2"):
                score(model, invalid)
    with pytest.raises(ValueError, match=r"ids must be \(B, 2N\), N tokens and the same N again, got \(3, 9\)"):
        inside.prefix_matching_scores(model, ids[:, :9])
    other = ids.copy()
    other[1, -1] = (other[1, -1] + 1) % 11
    with pytest.raises(ValueError, match=r"ids must be N tokens and the same N again in each row.*np.tile"):
        inside.prefix_matching_scores(model, other)
    with pytest.raises(ValueError, match="copying_scores: model must be a GPT with pre_norm"):
        inside.copying_scores(model_of(rng, pre_norm=False))
