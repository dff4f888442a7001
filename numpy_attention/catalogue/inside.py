"""Part VI of the catalogue: `edit` in all its variants, and models that run with an edit, as layers."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.layers import dropout_on, size_of
from numpy_attention.catalogue.models import GATED, TILED, TINY, tiny_gpt
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.inside.edits import Edit, edit, edit_backward
from numpy_attention.inside.run import RunCache, backward_with, forward_with
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.models.gpt import GPT
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from numpy_attention.models.text_encoder import TextEncoder, TextEncoderConfig
from numpy_attention.ops.sums import sum_to_shape

IDS = "ids: int<V> B T"
PAIRS = "source_ids: int<V> B T_s, target_ids: int<V> B T"
STREAM = "keep: bool B T 4, add: B T 4"
VECTOR = "keep: bool B T 1, add: 4"
HEADS = "keep: bool H 1 1, add: H T 2"
SIZES = {"B": 2, "T": 3, "T_s": 4, "V": 5, "H": 2}


Run = tuple[np.ndarray, tuple[RunCache, tuple[int, ...] | None]]


class AtPlace(Layer):
    """A run with an edit at one place, as a layer: a function of what is added there, and of every parameter."""

    def __init__(self, model: Any, place: str) -> None:
        self.model, self.place = model, place

    def run(self, keep: np.ndarray | None, add: np.ndarray | None, *inputs: np.ndarray, **options: Any) -> Run:
        """What the model gives, logits or directions, and what the backward needs."""
        y, cache = forward_with(self.model, {self.place: Edit(keep, add)}, *inputs, **options)
        return y, (cache, None if add is None else add.shape)

    def backward(self, dy: np.ndarray, cache: tuple[RunCache, tuple[int, ...] | None]) -> tuple[Any, Parameters]:
        """dadd and the gradients of all parameters; ids and keep have none."""
        of_run, add_shape = cache
        d_at, grads = backward_with(dy, of_run)
        dadd = None if add_shape is None else sum_to_shape(d_at[self.place], add_shape)
        return dadd, prefixed("model", grads)


class Edited(AtPlace):
    """Of a model that reads one text."""

    def forward(self, ids: np.ndarray, keep: np.ndarray | None, add: np.ndarray | None, **options: Any) -> Run:
        return self.run(keep, add, ids, **options)


class EditedPair(AtPlace):
    """Of an encoder-decoder, which reads two."""

    def forward(
        self, source_ids: np.ndarray, target_ids: np.ndarray, keep: np.ndarray | None, add: np.ndarray | None
    ) -> Run:
        return self.run(keep, add, source_ids, target_ids)


def _edits() -> list[Entry]:
    def entry(variant: str, spec: str, wrong: str = "") -> Entry:
        return Entry(f"edit: {variant}" if variant else "edit", "edit", spec, edit, edit_backward, wrong=wrong)

    refused = "x:int64 x[list] keep+0 keep:int64 keep:float64 keep[more] add+0 add-1 add:float32 add:int64 add[list]"
    return [
        entry("", "x: B H T d_v, keep: bool B H T d_v, add: B H T d_v", refused),
        entry("keep alone", "x: B T d, keep: bool B T d", "keep-1 keep:int64 keep[list] x:int64"),
        entry("keep of one head", "x: B H T d_v, keep: bool H 1 1"),
        entry("add alone", "x: ... d, add: d", "add+0 add:float32 add[list]"),
        entry("add along the batch", "x: B T d, add: T d", "add+0 add-1"),
        entry("add along batch and time", "x: B H T d_v, keep: bool B 1 T 1, add: H 1 d_v", "keep+0 add+0"),
        entry("add one number", "x: B T d, keep: bool B T d, add: 1 1 1"),
        entry("add along the width", "x: B T d, add: B T 1", "add+0"),
        entry("neither", "x: ... d", "x:int64 x[list]"),
    ]


def _runs() -> list[Entry]:
    def entry(
        variant: str, place: str, spec: str, model_of: Any, options: Any = None, wrong: str = "",
        kind: type[AtPlace] = Edited,
    ) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> AtPlace:
            return kind(model_of(sizes, rng, dtype), place)

        return Entry(
            f"forward_with: {variant}", "forward_with", spec, build=build, options=options or {}, wrong=wrong,
            fixed=SIZES, tolerance=1e-5,
        )

    def gpt(
        variant: str, place: str, spec: str, options: Any = None, rank: int = 0, recompute: bool = False,
        wrong: str = "", **config: Any,
    ) -> Entry:
        def model_of(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> GPT:
            return tiny_gpt(sizes, rng, dtype, rank, recompute, **config)

        return entry(f"{place}, {variant}", place, f"{IDS}, {spec}", model_of, options, wrong)

    def classifier(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> SequenceClassifier:
        config: dict[str, Any] = {"num_classes": 3, "vocab_size": size_of(sizes, "V"), **TINY}
        return SequenceClassifier(SequenceClassifierConfig(**config), rng, dtype)

    def text_encoder(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> TextEncoder:
        config: dict[str, Any] = {"vocab_size": size_of(sizes, "V"), **TINY}
        return TextEncoder(TextEncoderConfig(**config), rng, dtype)

    def seq2seq(place: str, spec: str, **config: Any) -> Entry:
        def model_of(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Seq2Seq:
            vocabularies = {"source_vocab_size": size_of(sizes, "V"), "target_vocab_size": size_of(sizes, "V")}
            return Seq2Seq(Seq2SeqConfig(**{**vocabularies, **TINY, **config}), rng, dtype)

        return entry(f"{place}, encoder-decoder", place, f"{PAIRS}, {spec}", model_of, kind=EditedPair)

    stream, of_heads, of_network, last = "blocks.1", "blocks.0.attention", "blocks.0.feed_forward", "norm"
    lengths = {"lengths": np.array([1, 3])}
    return [
        gpt("two blocks", stream, STREAM, num_layers=2, wrong="keep+1 keep:int64 add-1 add:float32 ids=999"),
        gpt("a vector at each place", "blocks.0", VECTOR, positions="rotary"),
        gpt("one head masked", of_heads, HEADS, wrong="keep+0 add+0 add:float32"),
        gpt("rotary, grouped heads, gated", of_heads, HEADS, positions="rotary", num_kv_heads=1, **GATED),
        gpt("post-norm, untied", of_heads, HEADS, pre_norm=False, tie_weights=False),
        gpt("low rank", of_heads, HEADS, rank=2),
        gpt("in tiles, ALiBi", of_heads, HEADS, **TILED, positions="alibi"),
        gpt("recomputed, dropout", of_heads, HEADS, dropout_on, recompute=True, dropout=0.3, num_layers=2),
        gpt("pre-norm", of_network, STREAM, num_layers=2),
        gpt("post-norm", of_network, STREAM, pre_norm=False, num_layers=2),
        gpt("dropout", of_network, VECTOR, dropout_on, dropout=0.3),
        gpt("recomputed", of_network, STREAM, recompute=True, num_layers=2),
        gpt("tied", last, STREAM),
        gpt("rms norm, untied", last, VECTOR, tie_weights=False, **GATED),
        entry("blocks.0.attention, classifier", of_heads, f"{IDS}, {HEADS}", classifier),
        entry("blocks.0.attention, text encoder", of_heads, f"{IDS}, {HEADS}", text_encoder, lengths),
        entry("blocks.0.feed_forward, text encoder", of_network, f"{IDS}, {STREAM}", text_encoder, lengths),
        seq2seq("decoder.blocks.0.cross_attention", HEADS),
        seq2seq("decoder.blocks.0.feed_forward", STREAM, pre_norm=True),
        seq2seq("encoder.blocks.0.attention", "keep: bool H 1 1, add: H T_s 2", pre_norm=True),
        seq2seq("encoder.blocks.0", "keep: bool B T_s 4, add: B T_s 4"),
    ]


INSIDE: tuple[Entry, ...] = (*_edits(), *_runs())
