"""The models of the catalogue: their losses as functions of every parameter, and the stack they are made of."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.layers import dropout_on, layer_entry, size_of
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from numpy_attention.models.stack import Stack

TINY = {"d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 3, "context_length": 4}
TOKENS = "ids: int<V> B T, targets: int<V|-100> B T"
PAIRS = "source_ids: int<V> B T_s, target_ids: int<W> B T, targets: int<W|-100> B T"
SMALL: dict[str, Any] = {"fixed": {"B": 2, "T": 3, "T_s": 4, "V": 5, "W": 5}, "tolerance": 1e-5}


def training_on(sizes: Sizes) -> Mapping[str, Any]:
    """Options of a loss that turn dropout and smoothing on."""
    return {"training": True, **dropout_on(sizes)}


def _gpt() -> list[Entry]:
    def entry(variant: str, options: Any = None, **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> GPT:
            return GPT(GPTConfig(**{"vocab_size": size_of(sizes, "V"), **TINY, **config}), rng, dtype)

        wrong = "ids:float64 ids=999 targets+0 ids[more]"
        return layer_entry(GPT, variant, TOKENS, build, options=options or {}, wrong=wrong, **SMALL)

    gated: dict[str, Any] = {"norm": "rms_norm", "activation": "swiglu", "bias": False}
    return [
        entry("learned positions, tied, two blocks", num_layers=2),
        entry("untied, post-norm", tie_weights=False, pre_norm=False, activation="relu"),
        entry("rotary, rms norm, swiglu, grouped heads", positions="rotary", num_kv_heads=1, **gated),
        entry("ALiBi, window", positions="alibi", window=2),
        entry("sinusoidal, exact gelu", positions="sinusoidal", activation="gelu_exact"),
        entry("dropout", training_on, dropout=0.3),
    ]


def _classifier() -> list[Entry]:
    def entry(variant: str, spec: str, options: Any = None, wrong: str = "", **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> SequenceClassifier:
            tokens = {} if "d_input" in config else {"vocab_size": size_of(sizes, "V")}
            complete = SequenceClassifierConfig(num_classes=3, **{**TINY, **tokens, **config})
            return SequenceClassifier(complete, rng, dtype)

        return layer_entry(SequenceClassifier, variant, spec, build, options=options or {}, wrong=wrong, **SMALL)

    class_token: dict[str, Any] = {"pooling": "class_token", "positions": "learned"}
    ids, one_each = "ids: int<V> B T", ", targets: int<3> B"
    return [
        entry("mean", ids + one_each, wrong="ids=999 targets+0"),
        entry("mean of the visible, pre-norm", ids + one_each, lambda _: {"lengths": np.array([1, 3])}, pre_norm=True),
        entry("class token, dropout", ids + one_each, training_on, dropout=0.3, **class_token),
        entry("a label for each token", ids + ", targets: int<3|-100> B T", pooling="none", norm="rms_norm"),
        entry("vectors for tokens", "ids: float B T 5" + one_each, d_input=5, activation="gelu"),
    ]


def _seq2seq() -> list[Entry]:
    def config_of(sizes: Sizes, config: Any) -> Seq2SeqConfig:
        vocabularies = {"source_vocab_size": size_of(sizes, "V"), "target_vocab_size": size_of(sizes, "W")}
        return Seq2SeqConfig(**{**vocabularies, **TINY, **config})

    def entry(variant: str, options: Any = None, wrong: str = "", **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Seq2Seq:
            return Seq2Seq(config_of(sizes, config), rng, dtype)

        return layer_entry(Seq2Seq, variant, PAIRS, build, options=options or {}, wrong=wrong, **SMALL)

    def stack(variant: str, spec: str, num_layers: int = 1, cross_attention: bool = False, **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Stack:
            return Stack(config_of({"V": 2, "W": 2}, config), num_layers, rng, cross_attention, dtype)

        return layer_entry(Stack, variant, spec, build, **SMALL)

    decoder = partial(stack, cross_attention=True)
    cross = "x: B T 4, context: B T_s 4"
    padded = cross + ", context_mask: bool B 1 1 T_s"
    return [
        stack("encoder, post-norm", "x: B T 4, mask: bool B 1 T T"),
        stack("encoder, pre-norm, learned positions", "x: B T 4", pre_norm=True, positions="learned"),
        decoder("decoder, post-norm, two blocks", padded, num_layers=2),
        decoder("decoder, pre-norm", cross + ", mask: bool T T", pre_norm=True, activation="gelu"),
        entry("post-norm", wrong="source_ids=999 target_ids=999 targets+0"),
        entry("padded", lambda _: {"source_lengths": np.array([2, 4]), "target_lengths": np.array([3, 1])}),
        entry("one table for all", tie_weights=True, share_embeddings=True, pre_norm=True, positions="learned"),
        entry("tied, label smoothing, dropout", training_on, tie_weights=True, label_smoothing=0.1, dropout=0.2),
    ]


MODELS: tuple[Entry, ...] = (*_gpt(), *_classifier(), *_seq2seq())
