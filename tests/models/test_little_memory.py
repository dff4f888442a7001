"""Two ways to save memory in training, with the same results: recomputed blocks and a loss by rows."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.models.c21b_head import LOGITS_AT_ONCE
from numpy_attention.ops.c11_losses import CrossEntropyCache
from numpy_attention.ops.c12b_linear_cross_entropy import LinearCrossEntropyCache
from numpy_attention.pretrained.c37_low_rank import add_low_rank
from tests.models import test_gpt, test_seq2seq, test_sequence_classifier, test_text_encoder

Drawn = tuple[Any, tuple[np.ndarray, ...]]


def gpt(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> Drawn:
    return test_gpt.gpt(rng, dtype, **changes), test_gpt.batch(rng)


def seq2seq(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> Drawn:
    arrays = (*test_seq2seq.batch(rng), test_seq2seq.SOURCE_LENGTHS, test_seq2seq.TARGET_LENGTHS)
    return test_seq2seq.seq2seq(rng, dtype, **changes), arrays


def classifier(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> Drawn:
    model = test_sequence_classifier.classifier(rng, dtype, **changes)
    return model, test_sequence_classifier.batch(model, rng)


def encoder(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> Drawn:
    return test_text_encoder.encoder(rng, dtype, pad_token=0, **changes), test_text_encoder.batch(rng)


def low_rank(rng: np.random.Generator, dtype: type = np.float64, **changes: object) -> Drawn:
    model, arrays = gpt(rng, dtype, **changes)
    add_low_rank(model, 2, rng=rng)
    for p in model.parameters().values():
        p[...] = rng.standard_normal(p.shape)
    return model, arrays


MODELS: dict[str, Callable[..., Drawn]] = {
    "gpt": gpt,
    "gpt, alibi, window": lambda rng, **changes: gpt(rng, positions="alibi", window=2, num_heads=4, **changes),
    "gpt, untied, post-norm": lambda rng, **changes: gpt(rng, tie_weights=False, pre_norm=False, **changes),
    "gpt, low rank": low_rank,
    "seq2seq": seq2seq,
    "seq2seq, one table": lambda rng, **changes: seq2seq(
        rng, share_embeddings=True, tie_weights=True, label_smoothing=0.1, num_decoder_layers=3, **changes
    ),
    "classifier": classifier,
    "classifier, class token": lambda rng, **changes: classifier(rng, pooling="class_token", **changes),
    "text encoder": encoder,
}
WITH_A_LARGE_HEAD = [name for name in MODELS if "gpt" in name or "seq2seq" in name]


def loss_of(model: Any, arrays: tuple[np.ndarray, ...], training: bool = True) -> tuple[np.ndarray, Any]:
    return model.loss(*arrays, training=training, rng=np.random.default_rng(5))


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the peak memory inside the context."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_blocks_give_identical_gradients(
    name: str, dropout: float, rng: np.random.Generator
) -> None:
    model, arrays = MODELS[name](rng, dtype=np.float32, dropout=dropout)
    loss, cache = loss_of(model, arrays)
    grads = model.backward(cache, -0.3)
    model.recompute = True
    again, cache = loss_of(model, arrays)
    assert again == loss
    for _ in range(2):  # the second time from the same cache
        other = model.backward(cache, -0.3)
        assert list(other) == list(grads)
        for parameter, gradient in other.items():
            np.testing.assert_array_equal(gradient, grads[parameter], strict=True)


@pytest.mark.slow
def test_recompute_saves_memory_in_a_deep_model(rng: np.random.Generator) -> None:
    config = na.GPTConfig(vocab_size=11, context_length=32, d_model=16, num_heads=2, num_layers=24, dropout=0.1)
    model, (ids, targets) = na.GPT(config, rng), rng.integers(0, 11, (2, 8, 32))

    def peak(recompute: bool) -> int:
        model.recompute = recompute
        with traced() as most:
            model.backward(loss_of(model, (ids, targets))[1])
            return most()

    plain, recomputed = peak(recompute=False), peak(recompute=True)
    gradients = sum(p.nbytes for p in model.parameters().values())
    assert recomputed - gradients < plain / 7  # the inputs of 24 blocks, and all arrays of one block


@pytest.mark.parametrize("name", WITH_A_LARGE_HEAD)
@pytest.mark.parametrize("logits_at_once", [1, 30, 31])
def test_loss_by_rows_equals_loss_of_all_logits(name: str, logits_at_once: int, rng: np.random.Generator) -> None:
    model, arrays = MODELS[name](rng, dropout=0.2)
    loss, cache = loss_of(model, arrays)
    assert isinstance(cache.cross_entropy, CrossEntropyCache)
    grads = model.backward(cache, -0.3)
    model.logits_at_once = logits_at_once
    by_rows, cache = loss_of(model, arrays)
    assert isinstance(cache.cross_entropy, LinearCrossEntropyCache)
    np.testing.assert_allclose(by_rows, loss, rtol=1e-13)
    for _ in range(2):
        found = model.backward(cache, -0.3)
        assert list(found) == list(grads)
        for parameter, gradient in found.items():
            size = max(1.0, float(np.abs(grads[parameter]).max()))
            np.testing.assert_allclose(gradient, grads[parameter], rtol=0, atol=1e-12 * size)
            assert gradient.flags.c_contiguous


def test_loss_by_rows_saves_memory_with_a_large_vocabulary(rng: np.random.Generator) -> None:
    V, N = 20_000, 8 * 32
    config = na.GPTConfig(vocab_size=V, context_length=32, d_model=8, num_heads=2, num_layers=1)
    model, (ids, targets) = na.GPT(config, rng), rng.integers(0, V, (2, 8, 32))
    of_logits = 4 * N * V

    def peak(logits_at_once: int) -> int:
        model.logits_at_once = logits_at_once
        with traced() as most:
            model.backward(model.loss(ids, targets)[1])
            return most()

    assert peak(LOGITS_AT_ONCE) > 2.9 * of_logits  # the logits, the probabilities, the gradient
    assert peak(10 * V) < 0.2 * of_logits
