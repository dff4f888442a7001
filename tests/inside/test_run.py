"""Chapter 38, continued: places do not change a model, and an edit changes the array at its place."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.inside import Edit, backward_with, forward_with, one_head, replacing, with_edits

SIZES: dict[str, Any] = {"context_length": 6, "d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 5}
ModelAndInputs = tuple[Any, tuple[np.ndarray, ...]]  # a model, and inputs for its forward


def gpt(rank: int = 0, recompute: bool = False, **config: Any) -> Callable[[Any], ModelAndInputs]:
    def make(dtype: Any) -> ModelAndInputs:
        rng = np.random.default_rng(0)
        model = na.GPT(na.GPTConfig(**{"vocab_size": 7, **SIZES, **config}), rng, dtype)
        if rank:
            na.add_low_rank(model, rank, rng=rng)
        model.recompute = recompute
        return perturbed(model), (rng.integers(0, 7, (3, 5)),)

    return make


def of_class(cls: Any, config_class: Any, *widths: int, **config: Any) -> Callable[[Any], ModelAndInputs]:
    def make(dtype: Any) -> ModelAndInputs:
        rng = np.random.default_rng(0)
        return perturbed(cls(config_class(**SIZES, **config), rng, dtype)), tuple(
            rng.integers(1, 7, (3, width)) for width in widths)

    return make


def perturbed(model: Any) -> Any:
    """Move the parameters far from their start, so that every part affects the result."""
    rng = np.random.default_rng(1)
    for p in model.parameters().values():
        p += (0.3 * rng.standard_normal(p.shape)).astype(p.dtype)
    return model


vocabularies = {"source_vocab_size": 7, "target_vocab_size": 7}
KINDS: dict[str, Callable[[Any], ModelAndInputs]] = {
    "learned positions, tied": gpt(),
    "post-norm, untied": gpt(pre_norm=False, tie_weights=False),
    "rotary, grouped heads, rms norm, swiglu": gpt(
        positions="rotary", num_kv_heads=1, norm="rms_norm", activation="swiglu", bias=False),
    "ALiBi, window": gpt(positions="alibi", window=2),
    "in tiles": gpt(attention="tiled", positions="rotary"),
    "low rank": gpt(rank=2),
    "recomputed": gpt(recompute=True),
    "low rank, recomputed, in tiles": gpt(rank=1, recompute=True, attention="tiled"),
    "classifier": of_class(na.SequenceClassifier, na.SequenceClassifierConfig, 5, num_classes=3, vocab_size=7),
    "classifier, class token": of_class(
        na.SequenceClassifier, na.SequenceClassifierConfig, 5, num_classes=3, vocab_size=7, pooling="class_token",
        positions="learned", pre_norm=True),
    "text encoder": of_class(na.TextEncoder, na.TextEncoderConfig, 5, vocab_size=7),
    "encoder-decoder": of_class(na.Seq2Seq, na.Seq2SeqConfig, 4, 5, **vocabularies),
    "encoder-decoder, pre-norm, in tiles": of_class(
        na.Seq2Seq, na.Seq2SeqConfig, 4, 5, **vocabularies, pre_norm=True, attention="tiled"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
GPTS = [kind for kind in KINDS if "coder" not in kind and "classifier" not in kind]


def places_of(model: Any, inputs: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return forward_with(model, {}, *inputs)[1].at


def part(model: Any, name: str) -> Any:
    for step in name.split("."):
        model = model[int(step)] if step.isdigit() else getattr(model, step)
    return model


def assert_equal_dicts(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert list(a) == list(b)
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)


@every_kind
@every_dtype
def test_run_without_edits_equals_the_model_to_the_last_bit(kind: str, dtype: Any) -> None:
    model, inputs = KINDS[kind](dtype)
    y, cache = model.forward(*inputs)
    watched, watched_cache = forward_with(model, {}, *inputs)
    np.testing.assert_array_equal(watched, y)
    assert watched.dtype == dtype
    dy = np.random.default_rng(2).standard_normal(y.shape).astype(dtype)
    grads = dict(model.gradients_from_logits(cache, dy))
    d_at, watched_grads = backward_with(dy, watched_cache)
    assert_equal_dicts(watched_grads, {name: grads[name] for name in model.parameters()})
    assert list(d_at) == list(watched_cache.at)
    for name, x in watched_cache.at.items():
        assert (d_at[name].shape, d_at[name].dtype, x.dtype) == (x.shape, dtype, dtype), name


@every_kind
def test_ablating_one_head_equals_setting_its_rows_of_w_o_to_zero(kind: str) -> None:
    model, inputs = KINDS[kind](np.float64)
    attentions = [name for name in places_of(model, inputs) if name.endswith("attention")]
    y, _ = forward_with(model, {attentions[0]: replacing(one_head(1, 2))}, *inputs)
    if "low rank" in kind:
        na.merge_low_rank(model)
    part(model, attentions[0]).w_o[4:] = 0.0
    np.testing.assert_allclose(model.forward(*inputs)[0], y, rtol=1e-11, atol=1e-13)


@every_kind
@every_dtype
def test_patching_from_another_run_gives_the_result_of_that_run(kind: str, dtype: Any) -> None:
    """Patching the last stream is enough; patching an earlier place also needs the later places."""
    model, inputs = KINDS[kind](dtype)
    others = tuple((ids + 1) % 7 for ids in inputs)
    y, cache = forward_with(model, {}, *inputs)
    assert not np.array_equal(forward_with(model, {}, *others)[0], y)
    last = [name for name in cache.at if name.endswith("norm") and not name.startswith("encoder")]
    if last:
        everything = replacing(np.ones(cache.at[last[0]].shape, bool), cache.at[last[0]])
        np.testing.assert_array_equal(forward_with(model, {last[0]: everything}, *others)[0], y)
    everywhere = {name: replacing(np.ones(x.shape, bool), x) for name, x in cache.at.items()}
    own, own_cache = forward_with(model, everywhere, *inputs)
    np.testing.assert_array_equal(own, y)
    assert_equal_dicts(own_cache.at, cache.at)


@every_kind
def test_gradient_at_a_place_equals_a_numerical_derivative(kind: str) -> None:
    model, inputs = KINDS[kind](np.float64)
    rng = np.random.default_rng(3)
    y, cache = forward_with(model, {}, *inputs)
    dy = rng.standard_normal(y.shape)
    d_at, _ = backward_with(dy, cache)
    for name, x in cache.at.items():
        step = rng.standard_normal(x.shape)
        up, down = (forward_with(model, {name: Edit(None, h * step)}, *inputs)[0] for h in (1e-5, -1e-5))
        np.testing.assert_allclose(((up - down) * dy).sum() / 2e-5, (d_at[name] * step).sum(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", GPTS)
def test_edited_gpt_generates_and_computes_losses_with_its_edits(kind: str) -> None:
    model, (ids,) = KINDS[kind](np.float64)
    edits = {"blocks.0.attention": replacing(one_head(0, 2)), "blocks.1": Edit(None, np.full(8, 0.5))}
    edited = with_edits(model, edits)
    logits, _ = forward_with(model, edits, ids)
    loss, cache = edited.loss(ids, ids)
    np.testing.assert_allclose(loss, na.cross_entropy(logits, ids)[0], rtol=1e-12)
    assert list(edited.backward(cache)) == list(model.parameters())
    assert all(mine is own for mine, own in zip(edited.parameters().values(), model.parameters().values()))
    tokens = [1, 2]
    for _ in range(3):  # reads the whole text for each token; generate uses the KV cache
        logits, _ = forward_with(model, edits, np.array([tokens]))
        tokens.append(int(logits[0, -1].argmax()))
    assert list(edited.generate(np.array([1, 2]), 3, temperature=0.0)) == tokens


def test_edited_encoder_decoder_answers_and_edited_classifier_predicts() -> None:
    model, (source, _) = KINDS["encoder-decoder"](np.float64)
    no_cross_attention = {"decoder.blocks.0.cross_attention": replacing(np.ones((1, 1, 1), bool)),
                          "decoder.blocks.1.cross_attention": replacing(np.ones((1, 1, 1), bool))}
    edited = with_edits(model, no_cross_attention)
    answers = [list(edited.greedy(ids, 1, 2, 4)) for ids in (source[:1], (source[:1] + 1) % 7)]
    assert np.array_equal(*answers), "without cross-attention, all sources give one answer"
    classifier, (ids,) = KINDS["classifier"](np.float64)
    unchanged = with_edits(classifier, {})
    np.testing.assert_array_equal(unchanged.predict(ids), classifier.predict(ids))


def test_attention_weights_of_an_edited_model_follow_its_edits() -> None:
    model, (ids,) = KINDS["learned positions, tied"](np.float64)
    first, weights = "blocks.0.attention", model.attention_weights(ids)
    edited = with_edits(model, {first: replacing(one_head(0, 2))}).attention_weights(ids)
    np.testing.assert_array_equal(edited[first], weights[first])
    assert not np.allclose(edited["blocks.1.attention"], weights["blocks.1.attention"])


def test_dropout_draws_the_same_masks_as_in_the_model() -> None:
    for recompute in (False, True):
        model, (ids,) = gpt(dropout=0.3, recompute=recompute)(np.float64)
        logits, _ = model.forward(ids, rng=np.random.default_rng(5))
        watched, cache = forward_with(model, {}, ids, rng=np.random.default_rng(5))
        np.testing.assert_array_equal(watched, logits)
        at = copy.deepcopy(cache.at)
        backward_with(logits, cache)
        assert_equal_dicts(cache.at, at)
