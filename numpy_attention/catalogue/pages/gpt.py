"""GPT (Chapter 23) in every configuration: in tiles, with recomputation, with changes of low rank."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, Options, layer_entry
from numpy_attention.catalogue.mistake import method_of
from numpy_attention.catalogue.tiny import GATED, IDS, SMALL, TILED, tiny_gpt, training_on
from numpy_attention.models.gpt import GPT
from numpy_attention.models.head import LossByRows
from numpy_attention.ops.sums import as_rows

CHAPTER = 23


def _entry(variant: str, options: Options | None = None, **model: Any) -> Entry:
    spec, wrong = f"{IDS}, targets: int<V|-100> B T", "ids:float64 ids=999 targets+0 ids[more]"
    return layer_entry(GPT, variant, spec, partial(tiny_gpt, **model), options, wrong=wrong, **SMALL)


ENTRIES = (
    _entry("learned positions, tied, two blocks", num_layers=2),
    _entry("untied, post-norm", tie_weights=False, pre_norm=False, activation="relu"),
    _entry("rotary, rms norm, swiglu, grouped heads", positions="rotary", num_kv_heads=1, **GATED),
    _entry("ALiBi, window", positions="alibi", window=2),
    _entry("sinusoidal, exact gelu", positions="sinusoidal", activation="gelu_exact"),
    _entry("dropout", training_on, dropout=0.3),
    _entry("in tiles, ALiBi, window, dropout", training_on, **TILED, positions="alibi", window=2, dropout=0.3),
    _entry("in tiles, rotary, grouped heads", **TILED, positions="rotary", num_kv_heads=1),
    _entry("low rank, rotary, rms norm, swiglu, grouped heads", rank=2, positions="rotary", num_kv_heads=1, **GATED),
    _entry("low rank, learned positions, untied, two blocks", rank=1, tie_weights=False, num_layers=2),
    _entry("dropout, two blocks, recomputed", training_on, recompute=True, dropout=0.3, num_layers=2),
    _entry("ALiBi, recomputed, tied, loss by two rows", recompute=True, rows=2, positions="alibi"),
    _entry("untied, loss by four rows", rows=4, tie_weights=False),
    _entry("low rank, tied, loss by rows", rank=2, rows=1),
    _entry("low rank, untied, loss by rows", rank=2, rows=1, tie_weights=False),
)


@method_of("GPT", "gradients_from_logits", diagnosis="used twice, its two gradients must be added")
def tied_head_left_out(self: GPT, cache: Any, dlogits: Array | LossByRows) -> Any:
    """The table is used twice, as embedding and as head, but the gradient of the head is not added.

    Hides: the embedding still learns from its own gradient, and untied models are right.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        if name == "token_embedding.table" and self.head is None and isinstance(dlogits, np.ndarray):
            gradient -= as_rows(dlogits).T @ as_rows(cache.head.x)
        yield name, gradient


@method_of("GPT", "gradients_from_logits", diagnosis="a mean replaces the sum over the 2 elements of axis 0")
def positions_not_summed_over_the_batch(self: GPT, cache: Any, dlogits: Array | LossByRows) -> Any:
    """All sequences of the batch use the table of positions, but it gets the mean of their gradients, not the sum.

    Hides: right for a batch of one, and the learning rate absorbs the factor.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        yield name, gradient / len(cache.token.ids) if name == "position_embedding.table" else gradient
