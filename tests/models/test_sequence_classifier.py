"""The classifier: gradients of every variant, and padding without effect."""

import dataclasses

import numpy as np
import pytest

import numpy_attention as na
from tests.models.gradients import assert_gradients, randomized

V, T, B, C = 11, 5, 4, 3
CONFIG = na.SequenceClassifierConfig(
    num_classes=C, context_length=7, d_model=12, num_heads=2, num_layers=2, vocab_size=V, activation="gelu"
)
VARIANTS = {
    "mean": {},
    "class token": {"pooling": "class_token", "positions": "learned"},
    "every token": {"pooling": "none", "norm": "rms_norm"},
    "pre-norm": {"pre_norm": True, "bias": False, "num_heads": 3},
    "vectors": {"vocab_size": None, "d_input": 6},
}
LENGTHS = np.array([5, 2, 0, 1])


def classifier(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> na.SequenceClassifier:
    return randomized(na.SequenceClassifier(dataclasses.replace(CONFIG, **changes), rng, dtype), rng)


def batch(model: na.SequenceClassifier, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    config = model.config
    ids = rng.integers(0, V, (B, T)) if config.d_input is None else rng.standard_normal((B, T, config.d_input))
    targets = rng.integers(0, C, (B, T) if config.pooling == "none" else B)
    targets[-1] = -100
    return ids, targets


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_agrees_with_central_differences(variant, lengths, rng):
    model = classifier(rng, **VARIANTS[variant])
    ids, targets = batch(model, rng)
    assert_gradients(model, lambda: model.loss(ids, targets, lengths), rng)


def test_gradients_with_dropout_agree_with_central_differences(rng):
    model = classifier(rng, dropout=0.3)
    ids, targets = batch(model, rng)
    assert_gradients(model, lambda: model.loss(ids, targets, training=True, rng=np.random.default_rng(3)), rng)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "every token"])
def test_padding_does_not_change_the_logits(variant, rng):
    model = classifier(rng, **VARIANTS[variant])
    ids, _ = batch(model, rng)
    padded, _ = model.forward(ids, LENGTHS)
    other = ids.copy()
    for row, length in zip(other, LENGTHS):
        row[length:] = 1 if model.config.d_input is None else 9.0
    np.testing.assert_array_equal(model.forward(other, LENGTHS)[0], padded)
    for i, length in enumerate(LENGTHS):
        if length:
            np.testing.assert_allclose(model.forward(ids[i : i + 1, :length])[0][0], padded[i], rtol=1e-10, atol=1e-12)


def test_pad_token_gives_the_same_result_as_lengths(rng):
    ids = np.array([[3, 4, 5, 6, 7], [3, 4, 0, 0, 0], [0, 0, 0, 0, 0], [9, 0, 0, 0, 0]])
    model = classifier(rng)
    with_token = na.SequenceClassifier(dataclasses.replace(CONFIG, pad_token=0), None, np.float64)
    with_token.load_parameters(model.parameters())
    np.testing.assert_array_equal(with_token.forward(ids)[0], model.forward(ids, LENGTHS)[0])


def test_logits_of_an_empty_sequence_are_the_bias(rng):
    model = classifier(rng)
    logits, _ = model.forward(np.ones((1, 4), int), np.array([0]))
    np.testing.assert_array_equal(logits[0], model.head.b)


def test_mean_pooling_averages_the_logits_of_the_tokens(rng):
    model = classifier(rng, pre_norm=False)
    ids, _ = batch(model, rng)
    every = na.SequenceClassifier(dataclasses.replace(CONFIG, pooling="none"), None, np.float64)
    every.load_parameters(model.parameters())
    labels, _ = every.forward(ids, LENGTHS)  # the head is linear, so pooling can come after it
    np.testing.assert_allclose(model.forward(ids, LENGTHS)[0][1], labels[1, :2].mean(axis=0), rtol=1e-10)


def test_predictions_and_attention_weights(rng):
    model = classifier(rng, pooling="class_token")
    ids, _ = batch(model, rng)
    np.testing.assert_array_equal(model.predict(ids, LENGTHS), model.forward(ids, LENGTHS)[0].argmax(axis=-1))
    weights = model.attention_weights(ids, LENGTHS)
    assert list(weights) == ["blocks.0.attention", "blocks.1.attention"]
    assert weights["blocks.0.attention"].shape == (B, 2, T + 1, T + 1)
    assert not weights["blocks.0.attention"][1, :, :, 3:].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_input": 3}, "either vocab_size"),
        ({"vocab_size": None}, "either vocab_size"),
        ({"pooling": "max"}, "pooling must be one of mean"),
        ({"num_classes": 0}, "num_classes must be at least 1"),
    ],
    ids=str,
)
def test_refuses_invalid_fields(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
