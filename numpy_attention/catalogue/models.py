"""The models of the catalogue: their losses as functions of every parameter, and the stack they are made of.

A text encoder is looked at twice: its loss, and by themselves the directions that it gives.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.layers import dropout_on, layer_entry, size_of
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.layer import Layer, prefixed
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from numpy_attention.models.stack import Stack
from numpy_attention.models.text_encoder import TextEncoder, TextEncoderConfig
from numpy_attention.pretrained.low_rank import add_low_rank

TINY = {"d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 3, "context_length": 4}
GATED: dict[str, Any] = {"norm": "rms_norm", "activation": "swiglu", "bias": False}
TILED: dict[str, Any] = {"attention": "tiled"}
TOKENS = "ids: int<V> B T, targets: int<V|-100> B T"
PAIRS = "source_ids: int<V> B T_s, target_ids: int<W> B T, targets: int<W|-100> B T"
SMALL: dict[str, Any] = {"fixed": {"B": 2, "T": 3, "T_s": 4, "V": 5, "W": 5}, "tolerance": 1e-5}


def training_on(sizes: Sizes) -> Mapping[str, Any]:
    """Options of a loss that turn dropout and smoothing on."""
    return {"training": True, **dropout_on(sizes)}


def in_little_memory(model: Any, recompute: bool = False, rows: int = 0) -> Any:
    """The model, told to keep of each block its input alone, and to take its loss by so many rows of V = 5 logits."""
    model.recompute = recompute
    if rows:
        model.logits_at_once = 5 * rows
    return model


def tiny_gpt(
    sizes: Sizes, rng: np.random.Generator, dtype: Any, rank: int = 0, recompute: bool = False, rows: int = 0,
    **config: Any,
) -> GPT:
    """A GPT that a check can afford, with changes of low rank if a rank is given."""
    model = GPT(GPTConfig(**{"vocab_size": size_of(sizes, "V"), **TINY, **config}), rng, dtype)
    if rank:
        add_low_rank(model, rank, 3.0, rng)
    return in_little_memory(model, recompute, rows)


def _gpt() -> list[Entry]:
    def entry(
        variant: str, options: Any = None, rank: int = 0, recompute: bool = False, rows: int = 0, **config: Any
    ) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> GPT:
            return tiny_gpt(sizes, rng, dtype, rank, recompute, rows, **config)

        wrong = "ids:float64 ids=999 targets+0 ids[more]"
        return layer_entry(GPT, variant, TOKENS, build, options=options or {}, wrong=wrong, **SMALL)

    return [
        entry("learned positions, tied, two blocks", num_layers=2),
        entry("untied, post-norm", tie_weights=False, pre_norm=False, activation="relu"),
        entry("rotary, rms norm, swiglu, grouped heads", positions="rotary", num_kv_heads=1, **GATED),
        entry("ALiBi, window", positions="alibi", window=2),
        entry("sinusoidal, exact gelu", positions="sinusoidal", activation="gelu_exact"),
        entry("dropout", training_on, dropout=0.3),
        entry("in tiles, ALiBi, window, dropout", training_on, **TILED, positions="alibi", window=2, dropout=0.3),
        entry("in tiles, rotary, grouped heads", **TILED, positions="rotary", num_kv_heads=1),
        entry("low rank, rotary, rms norm, swiglu, grouped heads", rank=2, positions="rotary", num_kv_heads=1, **GATED),
        entry("low rank, learned positions, untied, two blocks", rank=1, tie_weights=False, num_layers=2),
        entry("dropout, two blocks, recomputed", training_on, recompute=True, dropout=0.3, num_layers=2),
        entry("ALiBi, recomputed, tied, loss by two rows", recompute=True, rows=2, positions="alibi"),
        entry("untied, loss by four rows", rows=4, tie_weights=False),
        entry("low rank, tied, loss by rows", rank=2, rows=1),
        entry("low rank, untied, loss by rows", rank=2, rows=1, tie_weights=False),
    ]


def _classifier() -> list[Entry]:
    def entry(
        variant: str, spec: str, options: Any = None, wrong: str = "", recompute: bool = False, **config: Any
    ) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> SequenceClassifier:
            tokens = {} if "d_input" in config else {"vocab_size": size_of(sizes, "V")}
            complete = SequenceClassifierConfig(num_classes=3, **{**TINY, **tokens, **config})
            return in_little_memory(SequenceClassifier(complete, rng, dtype), recompute)

        return layer_entry(SequenceClassifier, variant, spec, build, options=options or {}, wrong=wrong, **SMALL)

    class_token: dict[str, Any] = {"pooling": "class_token", "positions": "learned"}
    ids, one_each = "ids: int<V> B T", ", targets: int<3> B"
    return [
        entry("mean", ids + one_each, wrong="ids=999 targets+0"),
        entry("mean of the visible, pre-norm", ids + one_each, lambda _: {"lengths": np.array([1, 3])}, pre_norm=True),
        entry("class token, dropout", ids + one_each, training_on, dropout=0.3, **class_token),
        entry("dropout, recomputed", ids + one_each, training_on, dropout=0.3, recompute=True),
        entry("in tiles", ids + one_each, lambda _: {"lengths": np.array([1, 3])}, **TILED, **class_token),
        entry("a label for each token", ids + ", targets: int<3|-100> B T", pooling="none", norm="rms_norm"),
        entry("vectors for tokens", "ids: float B T 5" + one_each, d_input=5, activation="gelu"),
    ]


def _seq2seq() -> list[Entry]:
    def config_of(sizes: Sizes, config: Any) -> Seq2SeqConfig:
        vocabularies = {"source_vocab_size": size_of(sizes, "V"), "target_vocab_size": size_of(sizes, "W")}
        return Seq2SeqConfig(**{**vocabularies, **TINY, **config})

    def entry(variant: str, options: Any = None, wrong: str = "", rows: int = 0, **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Seq2Seq:
            return in_little_memory(Seq2Seq(config_of(sizes, config), rng, dtype), rows > 0, rows)

        return layer_entry(Seq2Seq, variant, PAIRS, build, options=options or {}, wrong=wrong, **SMALL)

    def stack(variant: str, spec: str, num_layers: int = 1, cross_attention: bool = False, **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Stack:
            return Stack(config_of({"V": 2, "W": 2}, config), num_layers, rng, cross_attention, dtype)

        return layer_entry(Stack, variant, spec, build, **SMALL)

    decoder = partial(stack, cross_attention=True)
    cross = "x: B T 4, context: B T_s 4"
    padded = cross + ", context_mask: bool B 1 1 T_s"
    padding = {"source_lengths": np.array([2, 4]), "target_lengths": np.array([3, 1])}
    return [
        stack("encoder, post-norm", "x: B T 4, mask: bool B 1 T T"),
        stack("encoder, pre-norm, learned positions", "x: B T 4", pre_norm=True, positions="learned"),
        decoder("decoder, post-norm, two blocks", padded, num_layers=2),
        decoder("decoder, pre-norm", cross + ", mask: bool T T", pre_norm=True, activation="gelu"),
        entry("post-norm", wrong="source_ids=999 target_ids=999 targets+0"),
        entry("padded", lambda _: padding),
        entry("in tiles, padded, dropout", lambda sizes: {**padding, **training_on(sizes)}, **TILED, dropout=0.3),
        entry("one table for all", tie_weights=True, share_embeddings=True, pre_norm=True, positions="learned"),
        entry("tied, label smoothing, dropout", training_on, tie_weights=True, label_smoothing=0.1, dropout=0.2),
        entry("recomputed, dropout, loss by rows", training_on, rows=1, dropout=0.2, label_smoothing=0.1),
        entry("recomputed, tied, pre-norm, loss by four rows", rows=4, tie_weights=True, pre_norm=True),
    ]


class Directions(Layer):
    """What a text encoder gives, as a layer: its gradients from a dy of any kind, not of the loss alone."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder

    def forward(self, ids: np.ndarray, **options: Any) -> Any:
        """The directions (B, d_model)."""
        return self.encoder.forward(ids, **options)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[Any]:
        """The gradients of all parameters; ids have none."""
        return (prefixed("encoder", dict(self.encoder.gradients_from_logits(cache, dy))),)


def _text_encoder() -> list[Entry]:
    def encoder(sizes: Sizes, rng: np.random.Generator, dtype: Any, config: Any) -> TextEncoder:
        complete = TextEncoderConfig(**{"vocab_size": size_of(sizes, "V"), "temperature": 0.1, **TINY, **config})
        return TextEncoder(complete, rng, dtype)

    def pairs(
        variant: str, options: Any = None, wrong: str = "", rank: int = 0, recompute: bool = False, **config: Any
    ) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> TextEncoder:
            model = encoder(sizes, rng, dtype, config)
            if rank:
                add_low_rank(model, rank, rng=rng)
            return in_little_memory(model, recompute)

        spec = "ids: int<V> B T, targets: int<V> B T_s"
        return layer_entry(TextEncoder, variant, spec, build, options=options or {}, wrong=wrong, **SMALL)

    def directions(variant: str, spec: str, options: Any = None, **config: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Directions:
            return Directions(encoder(sizes, rng, dtype, config))

        name = f"directions, {variant}"
        return layer_entry(TextEncoder, name, spec, build, options=options or {}, **SMALL)

    wrong = "ids:float64 ids=999 targets=999 targets+0 ids[more]"
    ids, types = "ids: int<V> B T", "types: int<3> B T"
    return [
        pairs("pad token, dropout", training_on, wrong, pad_token=0, dropout=0.3),
        pairs("pre-norm, rms norm, swiglu, no bias", pre_norm=True, **GATED),
        pairs("low rank", rank=2, **GATED),
        pairs("dropout, recomputed", training_on, recompute=True, dropout=0.3),
        directions("lengths", ids, lambda _: {"lengths": np.array([1, 3])}, activation="gelu"),
        directions("a text without a token", ids, lambda _: {"lengths": np.array([0, 2])}),
        directions("lengths, in tiles", ids, lambda _: {"lengths": np.array([1, 3])}, **TILED),
        directions("types", f"{ids}, {types}", num_types=3),
    ]


MODELS: tuple[Entry, ...] = (*_gpt(), *_classifier(), *_seq2seq(), *_text_encoder())
