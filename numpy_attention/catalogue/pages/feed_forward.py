"""The feed-forward network (Chapter 18), with every activation; without an exercise and without known mistakes."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry, Options, dropout_on, layer_entry, size_of
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.feed_forward import FeedForward

CHAPTER = 18


def _entry(
    variant: str, spec: str = "x: B T d", wrong: str = "", call: Options | None = None, **options: Any
) -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> FeedForward:
        return FeedForward(size_of(sizes, "d"), 5, rng, dtype=dtype, **options)

    return layer_entry(FeedForward, variant, spec, build, wrong=wrong, options=call)


ENTRIES = (
    _entry("relu", wrong="x-1"),
    *(_entry(name, activation=name) for name in ("gelu", "gelu_exact", "silu", "swiglu", "geglu")),
    _entry("swiglu, no bias", "x: ... d", activation="swiglu", bias=False),
    _entry("dropout", call=dropout_on, activation="gelu", dropout=0.4),
)
