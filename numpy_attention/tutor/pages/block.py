"""The block of the exercise: our class with the options that the exercise has, or the class of an answer."""

from typing import Any

import numpy as np

from numpy_attention.layers.c20_block import Block


def pre_norm_block(cls: type, d_model: int, num_heads: int, d_ff: int, rng: np.random.Generator, dtype: Any) -> Any:
    """A pre-norm block with gelu; the class of an answer is always such a block and has no options."""
    options = {"pre_norm": True, "activation": "gelu"} if issubclass(cls, Block) else {}
    return cls(d_model, num_heads, d_ff, rng, dtype=dtype, **options)
