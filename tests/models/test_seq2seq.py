"""The encoder-decoder: gradients of every variant, and padding on both sides."""

import dataclasses

import numpy as np
import pytest

import numpy_attention as na
from tests.models.gradients import assert_gradients, randomized

V, T_S, T, B = 9, 6, 4, 4
START, STOP = 1, 2
CONFIG = na.Seq2SeqConfig(
    source_vocab_size=V, target_vocab_size=V, context_length=7, d_model=12, num_heads=2, activation="gelu")  # fmt: skip
VARIANTS = {
    "post-norm": {},
    "pre-norm, tied": {"pre_norm": True, "tie_weights": True, "num_decoder_layers": 1},
    "one table for all": {"share_embeddings": True, "tie_weights": True, "num_layers": 1},
    "one table for both sides": {"share_embeddings": True, "norm": "rms_norm", "bias": False},
    "learned positions": {"positions": "learned", "target_vocab_size": 8, "num_heads": 3, "num_decoder_layers": 3},
}
SOURCE_LENGTHS = np.array([6, 2, 0, 1])  # the third source is all padding
TARGET_LENGTHS = np.array([4, 3, 4, 1])


def seq2seq(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> na.Seq2Seq:
    return randomized(na.Seq2Seq(dataclasses.replace(CONFIG, **changes), rng, dtype), rng)


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    source, target, targets = (rng.integers(0, 8, (B, length)) for length in (T_S, T, T))
    targets[np.arange(T) >= TARGET_LENGTHS[:, None]] = -100
    return source, target, targets


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_agrees_with_central_differences(variant, rng):
    model, arrays = seq2seq(rng, **VARIANTS[variant]), batch(rng)
    assert_gradients(model, lambda: model.loss(*arrays, SOURCE_LENGTHS, TARGET_LENGTHS), rng)


def test_gradients_with_dropout_and_label_smoothing_agree_with_central_differences(rng):
    model, arrays = seq2seq(rng, dropout=0.2, label_smoothing=0.1), batch(rng)
    assert_gradients(model, lambda: model.loss(*arrays, training=True, rng=np.random.default_rng(3)), rng)
    plain = seq2seq(rng)
    plain.load_parameters(model.parameters())
    assert model.loss(*arrays)[0] == plain.loss(*arrays)[0]  # labels are smoothed only in training


def test_padding_on_both_sides_changes_nothing(rng):
    model, (source, target, targets) = seq2seq(rng), batch(rng)
    loss, cache = model.loss(source, target, targets, SOURCE_LENGTHS, TARGET_LENGTHS)
    other_source, other_target = source.copy(), target.copy()
    other_source[np.arange(T_S) >= SOURCE_LENGTHS[:, None]] = 5
    other_target[np.arange(T) >= TARGET_LENGTHS[:, None]] = 5
    again, _ = model.loss(other_source, other_target, targets, SOURCE_LENGTHS, TARGET_LENGTHS)
    assert loss == pytest.approx(float(again), rel=1e-13)
    alone, _ = model.forward(source[1:2, :2], target[1:2, :3])
    np.testing.assert_allclose(
        model.forward(source, target, SOURCE_LENGTHS, TARGET_LENGTHS)[0][1, :3], alone[0], rtol=1e-10, atol=1e-12
    )
    assert all(np.isfinite(gradient).all() for gradient in model.backward(cache).values())


def test_pad_token_gives_the_same_result_as_lengths(rng):
    source, target = np.array([[3, 4, 0, 0], [0, 0, 0, 0]]), np.array([[1, 5, 0], [1, 0, 0]])
    model = seq2seq(rng)
    with_token = na.Seq2Seq(dataclasses.replace(CONFIG, pad_token=0), None, np.float64)
    with_token.load_parameters(model.parameters())
    by_lengths, _ = model.forward(source, target, np.array([2, 0]), np.array([2, 1]))
    np.testing.assert_array_equal(with_token.forward(source, target)[0], by_lengths)


def test_no_target_position_sees_a_later_one(rng):
    model, (source, target, _) = seq2seq(rng), batch(rng)
    logits, _ = model.forward(source, target)
    target[:, 2:] = (target[:, 2:] + 1) % V
    np.testing.assert_allclose(model.forward(source, target)[0][:, :2], logits[:, :2], rtol=1e-10, atol=1e-12)


def test_attention_weights_of_all_three_kinds(rng):
    model, (source, target, _) = seq2seq(rng), batch(rng)
    weights = model.attention_weights(source, target, SOURCE_LENGTHS)
    shapes = {name: w.shape[2:] for name, w in weights.items()}
    assert shapes == {
        **{f"encoder.blocks.{i}.attention": (T_S, T_S) for i in range(2)},
        **{f"decoder.blocks.{i}.attention": (T, T) for i in range(2)},
        **{f"decoder.blocks.{i}.cross_attention": (T, T_S) for i in range(2)},
    }
    assert not weights["decoder.blocks.1.cross_attention"][2].any()  # an empty source has no visible token
    np.testing.assert_allclose(weights["decoder.blocks.0.cross_attention"][0].sum(axis=-1), 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_backward_repeats_its_result_and_keeps_the_dtype(dtype, rng):
    model, arrays = seq2seq(rng, dtype, tie_weights=True, share_embeddings=True), batch(rng)
    loss, cache = model.loss(*arrays)
    grads, again = model.backward(cache), model.backward(cache)
    assert loss.dtype == dtype
    for name, gradient in grads.items():
        assert gradient.dtype == dtype
        np.testing.assert_array_equal(gradient, again[name])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.forward(np.zeros((1, 8), int), np.zeros((1, 2), int)), "source_ids must be .* context_length 7"),
        (lambda m: m.forward(np.zeros((1, 2), int), np.zeros((1, 8), int)), "target_ids must be .* context_length 7"),
        (lambda m: m.forward(np.zeros((1, 0), int), np.zeros((1, 2), int)), "source_ids must be .* T at least 1"),
        (lambda m: m.forward(np.zeros(2, int), np.zeros((1, 2), int)), "for one sequence, pass"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_the_invalid_argument(call, message, rng):
    with pytest.raises(ValueError, match=message):
        call(seq2seq(rng))


@pytest.mark.parametrize("context", [None, [[1.0] * 12], np.ones((3, 4, 12), int)], ids=["none", "list", "ids"])
def test_refuses_a_context_that_is_not_an_array_of_floats(context, rng):
    with pytest.raises(TypeError, match="Seq2Seq: context must be"):
        seq2seq(rng).decode(np.zeros((3, 2), int), context)
