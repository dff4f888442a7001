"""The text encoder: directions of length 1, padding without effect, pairs of texts that belong together."""

import dataclasses
import math

import numpy as np
import pytest

import numpy_attention as na
from tests.models.gradients import assert_gradients, randomized

V, T, T_2, B = 11, 6, 5, 4
CONFIG = na.TextEncoderConfig(vocab_size=V, context_length=9, d_model=12, num_heads=3, num_layers=2, d_ff=7)
VARIANTS = {
    "bert": {},
    "pad token": {"pad_token": 0},
    "pre-norm": {"pre_norm": True, "norm": "rms_norm", "bias": False},
    "sinusoidal": {"positions": "sinusoidal", "activation": "relu", "num_types": 3},
    "warm": {"temperature": 0.7, "norm_eps": 1e-3},
    "first token": {"pooling": "first_token", "pad_token": 0},
}
LENGTHS = np.array([6, 2, 0, 1])


def encoder(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> na.TextEncoder:
    return randomized(na.TextEncoder(dataclasses.replace(CONFIG, **changes), rng, dtype), rng)


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of texts of unequal length, for a model whose pad_token is 0."""
    ids, targets = rng.integers(1, V, (B, T)), rng.integers(1, V, (B, T_2))
    ids[1, 4:] = targets[2, 3:] = targets[0, 1:] = 0
    return ids, targets


def padded(ids: np.ndarray) -> np.ndarray:
    ids = ids.copy()
    for row, length in zip(ids, LENGTHS):
        row[length:] = 0
    return ids


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_agrees_with_central_differences(variant, rng):
    model = encoder(rng, **VARIANTS[variant])
    ids, targets = batch(rng)
    assert_gradients(model, lambda: model.loss(ids, targets), rng)


def test_gradients_with_dropout_agree_with_central_differences(rng):
    model = encoder(rng, dropout=0.3)
    ids, targets = batch(rng)
    assert_gradients(model, lambda: model.loss(ids, targets, training=True, rng=np.random.default_rng(3)), rng)


def test_directions_have_length_1(rng):
    y, _ = encoder(rng).forward(rng.integers(0, V, (B, T)), np.array([6, 2, 3, 1]))
    assert y.shape == (B, 12)
    np.testing.assert_allclose((y * y).sum(axis=-1), 1.0, rtol=1e-14)


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_does_not_change_the_direction(variant, rng):
    model = encoder(rng, **VARIANTS[variant])
    ids = rng.integers(1, V, (B, T))
    y, _ = model.forward(padded(ids), LENGTHS)
    np.testing.assert_array_equal(model.forward(ids, LENGTHS)[0], y)
    for i, length in enumerate(LENGTHS):
        if length:
            np.testing.assert_allclose(model.forward(ids[i : i + 1, :length])[0][0], y[i], rtol=1e-10, atol=1e-12)


def test_pad_token_gives_the_same_result_as_lengths(rng):
    model = encoder(rng)
    with_token = na.TextEncoder(dataclasses.replace(CONFIG, pad_token=0), None, np.float64)
    with_token.load_parameters(model.parameters())
    ids = padded(rng.integers(1, V, (B, T)))
    np.testing.assert_array_equal(with_token.forward(ids)[0], model.forward(ids, LENGTHS)[0])
    assert np.abs(model.forward(ids)[0] - model.forward(ids, LENGTHS)[0]).max() > 0.01


def test_text_of_padding_has_zero_output_and_zero_gradients(rng):
    model = encoder(rng, pad_token=0)
    ids, targets = batch(rng)
    ids[2] = 0
    y, cache = model.forward(ids)
    assert not y[2].any()
    dy = np.zeros_like(y)
    dy[2] = rng.standard_normal(12)
    for name, gradient in model.gradients_from_logits(cache, dy).items():
        assert not gradient.any(), name
    loss, cache = model.loss(ids, targets)
    assert math.isfinite(loss)
    assert all(np.isfinite(gradient).all() for gradient in model.backward(cache).values())


def test_the_direction_is_that_of_the_pooled_hidden_states(rng):
    ids = rng.integers(0, V, (B, T))
    for pooling in ("mean", "first_token"):
        y, cache = encoder(rng, pooling=pooling).forward(ids, LENGTHS)
        assert cache.hidden.shape == (B, T, 12)
        for row, hidden, length in zip(y, cache.hidden, LENGTHS):
            if length:
                u = hidden[:length].mean(axis=0) if pooling == "mean" else hidden[0]
                np.testing.assert_allclose(row, u / np.linalg.norm(u), rtol=1e-12)
            else:
                assert not row.any()


def test_the_types_of_segments_are_added(rng):
    model = encoder(rng)
    ids = rng.integers(0, V, (B, T))
    types = (np.arange(T) >= 4).astype(np.int64) * np.ones((B, 1), np.int64)
    y, cache = model.forward(ids, types=types)
    np.testing.assert_array_equal(model.forward(ids)[0], model.forward(ids, types=np.zeros_like(ids))[0])
    assert np.abs(y - model.forward(ids)[0]).max() > 1e-3
    grads = model.gradients_from_logits(cache, rng.standard_normal(y.shape))
    assert grads["type_embedding.table"].any(axis=1).all()
    with pytest.raises(ValueError, match=r"integers in \[0, 2\), got 2"):
        model.forward(ids, types=np.full_like(ids, 2))


def test_loss_is_the_cross_entropy_of_the_cosines(rng):
    model = encoder(rng, temperature=0.3)
    ids, targets = batch(rng)
    a, b = model.forward(ids)[0], model.forward(targets)[0]
    scores = a @ b.T / 0.3
    expected = np.mean([np.log(np.exp(scores[i]).sum()) - scores[i, i] for i in range(B)])
    assert float(model.loss(ids, targets)[0]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_training_lowers_the_loss_on_new_pairs(rng):
    """Texts with the same first id are pairs; all other ids are random."""
    model = na.TextEncoder(dataclasses.replace(CONFIG, d_ff=24), rng, np.float64)

    def pairs() -> tuple[np.ndarray, np.ndarray]:
        ids, targets = rng.integers(0, V, (2, 8, 4))
        ids[:, 0] = targets[:, 0] = rng.permutation(V)[:8]
        return ids, targets

    optimizer = na.AdamW(model.parameters(), learning_rate=3e-3)
    before = float(model.loss(*pairs())[0])
    for _ in range(120):
        _, cache = model.loss(*pairs())
        optimizer.step(model.backward(cache))
    after = float(np.mean([model.loss(*pairs())[0] for _ in range(5)]))
    assert before > 1.0
    assert after < 0.1


def test_float32_is_close_to_float64_and_backward_repeats_its_result(rng):
    wide = encoder(rng)
    narrow = na.TextEncoder(wide.config, None, np.float32)
    for name, p in narrow.parameters().items():
        p[...] = wide.parameters()[name]
    ids, targets = batch(rng)
    loss, cache = narrow.loss(ids, targets)
    expected, wide_cache = wide.loss(ids, targets)
    assert loss.dtype == np.float32
    assert float(loss) == pytest.approx(float(expected), rel=1e-3)
    y, _ = narrow.forward(ids)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, wide.forward(ids)[0], rtol=0, atol=1e-5)
    again, grads = narrow.backward(cache), wide.backward(wide_cache)
    for name, gradient in narrow.backward(cache).items():
        assert gradient.dtype == np.float32
        np.testing.assert_array_equal(gradient, again[name])
        np.testing.assert_allclose(gradient, grads[name], rtol=0, atol=1e-3 * max(1.0, np.abs(grads[name]).max()))


def test_loaded_encoder_equals_the_saved_encoder(rng, tmp_path):
    model = encoder(rng, np.float32)
    model.save(tmp_path / "encoder.npz")
    again = na.TextEncoder.load(tmp_path / "encoder.npz")
    assert again.config == model.config
    ids = rng.integers(0, V, (B, T))
    np.testing.assert_array_equal(again.forward(ids)[0], model.forward(ids)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_types": 0}, "num_types must be at least 1, got 0"),
        ({"temperature": 0.0}, "temperature must be at least 1e-06"),
        ({"temperature": math.nan}, "temperature must be finite, got nan"),
        ({"positions": "rotary"}, "positions must be one of learned, sinusoidal"),
    ],
    ids=str,
)
def test_refuses_invalid_fields(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
