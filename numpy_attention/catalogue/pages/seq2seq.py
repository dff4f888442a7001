"""The encoder-decoder (Chapter 24) and its stacks (Chapter 21), with padding, tied tables and recomputation."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry, Options, layer_entry
from numpy_attention.catalogue.tiny import SMALL, TILED, TINY, tiny_model, training_on
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.models.stack import Stack

CHAPTER = 24

PAIRS = "source_ids: int<V> B T_s, target_ids: int<W> B T, targets: int<W|-100> B T"
CROSS = "x: B T 4, context: B T_s 4"
PADDED = CROSS + ", context_mask: bool B 1 1 T_s"
PADDING = {"source_lengths": np.array([2, 4]), "target_lengths": np.array([3, 1])}


def _entry(variant: str, options: Options | None = None, wrong: str = "", **model: Any) -> Entry:
    return layer_entry(Seq2Seq, variant, PAIRS, partial(tiny_model, Seq2Seq, **model), options, wrong=wrong, **SMALL)


def _stack(variant: str, spec: str, num_layers: int = 1, cross_attention: bool = False, **config: Any) -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Stack:
        complete = Seq2SeqConfig(source_vocab_size=2, target_vocab_size=2, **{**TINY, **config})
        return Stack(complete, num_layers, rng, cross_attention, dtype)

    return layer_entry(Stack, variant, spec, build, **SMALL)


_decoder = partial(_stack, cross_attention=True)

ENTRIES = (
    _stack("encoder, post-norm", "x: B T 4, mask: bool B 1 T T"),
    _stack("encoder, pre-norm, learned positions", "x: B T 4", pre_norm=True, positions="learned"),
    _decoder("decoder, post-norm, two blocks", PADDED, num_layers=2),
    _decoder("decoder, pre-norm", CROSS + ", mask: bool T T", pre_norm=True, activation="gelu"),
    _entry("post-norm", wrong="source_ids=999 target_ids=999 targets+0"),
    _entry("padded", PADDING),
    _entry("in tiles, padded", PADDING, **TILED),
    _entry("one table for all", tie_weights=True, share_embeddings=True, pre_norm=True, positions="learned"),
    _entry("tied, label smoothing, dropout", training_on, tie_weights=True, label_smoothing=0.1, dropout=0.2),
    _entry("recomputed, dropout, loss by rows", training_on, recompute=True, rows=1, dropout=0.2, label_smoothing=0.1),
    _entry("recomputed, tied, pre-norm, loss by four rows", recompute=True, rows=4, tie_weights=True, pre_norm=True),
)
