"""Chapter 21, continued. Recomputing: less memory for more time

The arrays that blocks store for their backward take most of the memory of training. With `recompute`, a forward stores
only the input of each block, and the backward first runs the forward of the block again. Then only one block at a time
has all its arrays in memory. But a step takes more time, between 1/4 and 1/3 more. Dropout must drop the same elements
again, so the forward also stores a copy of the random generator, made before the block ran. The gradients are the same
to the last bit.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4.
"""

import copy
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c20_block import Block, BlockCache


class SavedInput(NamedTuple):
    """The input of a block, in place of its cache."""

    block: Block
    x: np.ndarray  # (B, T, d_model)
    inputs: dict[str, Any]  # the other arguments of the block
    rng: np.random.Generator | None  # a copy of the random generator, made before the block ran


def cache_of(saved: BlockCache | SavedInput) -> BlockCache:
    """The cache of a block, recomputed if only the input was saved."""
    if not isinstance(saved, SavedInput):
        return saved
    rng = copy.deepcopy(saved.rng)  # a new copy, because backward may be called more than once
    _, cache = saved.block.forward(saved.x, rng=rng, **saved.inputs)
    return cache
