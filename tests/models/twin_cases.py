"""The models that are compared with PyTorch, and their batches from fixed seeds, for the script and the test."""

from pathlib import Path
from typing import Any

import numpy as np

import numpy_attention as na

FILE = Path(__file__).with_name("twins.npz")
STEPS = 5
ADAMW = {"learning_rate": 1e-2, "beta_1": 0.9, "beta_2": 0.99, "eps": 1e-8, "weight_decay": 0.1}

GPT = {"vocab_size": 7, "context_length": 6, "d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 11}
CLASSIFIER = {"num_classes": 3, "context_length": 6, "d_model": 8, "num_heads": 2, "d_ff": 11, "pad_token": 0}
SEQ2SEQ = {"source_vocab_size": 7, "target_vocab_size": 7, "context_length": 6, "d_model": 6, "num_heads": 2,
           "num_layers": 2, "num_decoder_layers": 1, "d_ff": 7, "pad_token": 0}  # fmt: skip

MODELS: dict[str, Any] = {
    "gpt": na.GPTConfig(**GPT),
    "gpt, llama": na.GPTConfig(
        **GPT, positions="rotary", norm="rms_norm", activation="swiglu", bias=False, num_kv_heads=1),
    "gpt, alibi": na.GPTConfig(
        **GPT, positions="alibi", window=3, activation="gelu_exact", tie_weights=False, pre_norm=False),
    "classifier": na.SequenceClassifierConfig(**CLASSIFIER, vocab_size=7),
    "classifier, class token": na.SequenceClassifierConfig(
        **CLASSIFIER, vocab_size=7, pooling="class_token", pre_norm=True, positions="learned", activation="gelu"),
    "seq2seq": na.Seq2SeqConfig(**SEQ2SEQ, label_smoothing=0.1),
    "seq2seq, one table": na.Seq2SeqConfig(
        **SEQ2SEQ, share_embeddings=True, tie_weights=True, pre_norm=True, positions="learned", activation="silu"),
}  # fmt: skip
CLASSES = {
    na.GPTConfig: na.GPT,
    na.SequenceClassifierConfig: na.SequenceClassifier,
    na.Seq2SeqConfig: na.Seq2Seq,
}


def make(name: str) -> tuple[Any, list[tuple[np.ndarray, ...]]]:
    """The model in float64 with random parameters, and a batch for each step."""
    config = MODELS[name]
    rng = np.random.default_rng(list(name.encode()))
    model = CLASSES[type(config)](config, None, np.float64)
    for p in model.parameters().values():
        p[...] = 0.4 * rng.standard_normal(p.shape)
    return model, [_batch(config, rng) for _ in range(STEPS)]


def _batch(config: Any, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    B, T = 3, 5
    if isinstance(config, na.GPTConfig):
        ids, targets = rng.integers(0, 7, (2, B, T))
        targets[1, 2] = -100
        return ids, targets
    source = rng.integers(1, 7, (B, T))
    source[1, 3:] = source[2, 1:] = 0
    if isinstance(config, na.SequenceClassifierConfig):
        return source, rng.integers(0, 3, B)
    target, targets = rng.integers(1, 7, (2, B, T - 1))
    target[1, 2:], targets[1, 2:] = 0, -100
    return source, target, targets
