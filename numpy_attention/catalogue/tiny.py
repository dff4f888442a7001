"""Settings of models that are small enough to check the gradient of every parameter; several pages use them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import dropout_on
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.pretrained.low_rank import add_low_rank

TINY = {"d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 3, "context_length": 4}
GATED: dict[str, Any] = {"norm": "rms_norm", "activation": "swiglu", "bias": False}
TILED: dict[str, Any] = {"attention": "tiled"}
IDS = "ids: int<V> B T"
LENGTHS = {"lengths": np.array([1, 3])}  # lengths of the B = 2 texts
SMALL: dict[str, Any] = {"fixed": {"B": 2, "T": 3, "T_s": 4, "V": 5, "W": 5}, "tolerance": 1e-5}


def training_on(sizes: Sizes) -> Mapping[str, Any]:
    """Options of a loss that turn dropout and label smoothing on."""
    return {"training": True, **dropout_on(sizes)}


def tiny_model(
    kind: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any, rank: int = 0, recompute: bool = False,
    rows: int = 0, **config: Any,
) -> Any:
    """A small model: with changes of low rank, with recomputed blocks, with the loss of `rows` rows at once."""
    vocabularies = {"vocab_size": sizes["V"]}
    if kind is Seq2Seq:
        vocabularies = {"source_vocab_size": sizes["V"], "target_vocab_size": sizes.get("W", sizes["V"])}
    model = kind(kind.config_class(**{**vocabularies, **TINY, **config}), rng, dtype)
    if rank:
        add_low_rank(model, rank, 3.0, rng)
    model.recompute = recompute
    if rows:
        model.logits_at_once = SMALL["fixed"]["V"] * rows
    return model
