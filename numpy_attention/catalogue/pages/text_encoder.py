"""The text encoder (Chapter 22, continued): the loss of pairs of texts, and the directions without the loss."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, Options, layer_entry
from numpy_attention.catalogue.tiny import GATED, IDS, LENGTHS, SMALL, TILED, tiny_model, training_on
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.layer import Layer, prefixed
from numpy_attention.models.text_encoder import TextEncoder

CHAPTER = 22


class Directions(Layer):
    """The forward of a text encoder as a layer, so that its backward is checked with a random dy, without the loss."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder

    def forward(self, ids: Array, **options: Any) -> Any:
        return self.encoder.forward(ids, **options)

    def backward(self, dy: Array, cache: Any) -> tuple[Any]:
        """The gradients of all parameters; ids have no gradient."""
        return (prefixed("encoder", dict(self.encoder.gradients_from_logits(cache, dy))),)


REFUSED = "ids:float64 ids=999 targets=999 targets+0 ids[more]"


def _pairs(variant: str, options: Options | None = None, wrong: str = "", **model: Any) -> Entry:
    spec, build = f"{IDS}, targets: int<V> B T_s", partial(tiny_model, TextEncoder, temperature=0.1, **model)
    return layer_entry(TextEncoder, variant, spec, build, options, wrong=wrong, **SMALL)


def _directions(variant: str, spec: str, options: Options | None = None, **config: Any) -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Directions:
        return Directions(tiny_model(TextEncoder, sizes, rng, dtype, **config))

    return layer_entry(TextEncoder, f"directions, {variant}", spec, build, options=options, **SMALL)


ENTRIES = (
    _pairs("pad token, dropout", training_on, REFUSED, pad_token=0, dropout=0.3),
    _pairs("pre-norm, rms norm, swiglu, no bias", pre_norm=True, **GATED),
    _pairs("low rank", rank=2, **GATED),
    _pairs("dropout, recomputed", training_on, recompute=True, dropout=0.3),
    _directions("lengths", IDS, LENGTHS, activation="gelu"),
    _directions("a text without a token", IDS, {"lengths": np.array([0, 2])}),
    _directions("lengths, in tiles", IDS, LENGTHS, **TILED),
    _directions("types", f"{IDS}, types: int<3> B T", num_types=3),
)
