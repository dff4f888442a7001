"""Models that are small enough to check the gradient of every parameter; several pages use them."""

from typing import Any

import numpy as np

from numpy_attention.models.c24_seq2seq import Seq2Seq
from numpy_attention.pretrained.c37_low_rank import add_low_rank
from numpy_attention.shapes import Sizes

TINY = {"d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 3, "context_length": 4}
GATED: dict[str, Any] = {"norm": "rms_norm", "activation": "swiglu", "bias": False}
TILED: dict[str, Any] = {"attention": "tiled"}


def tiny_model(
    kind: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any, rank: int = 0, recompute: bool = False,
    rows: int = 0, **config: Any,
) -> Any:
    """A small model. `rank` adds changes of low rank; `recompute` runs each block again in the backward.

    `rows` is the number of rows of logits that the loss computes at a time.
    """
    V: Any = sizes["V"]
    vocabularies = {"vocab_size": V}
    if kind is Seq2Seq:
        vocabularies = {"source_vocab_size": V, "target_vocab_size": sizes.get("W", V)}
    model = kind(kind.config_class(**{**vocabularies, **TINY, **config}), rng, dtype)
    if rank:
        add_low_rank(model, rank, 3.0, rng)
    model.recompute = recompute
    if rows:
        model.logits_at_once = V * rows
    return model
