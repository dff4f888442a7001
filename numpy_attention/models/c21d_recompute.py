"""Chapter 21, continued. Recomputing: less memory for more time

The arrays that blocks store for their backward take most of the memory of training. A `Recomputed` block stores only
its input in the forward, and its backward first runs the forward again. Then only one block at a time has all its
arrays in memory. But a step takes more time, between 1/4 and 1/3 more. Dropout must drop the same elements again, so
the forward also stores a copy of the random generator, made before the block ran. The gradients are the same to the
last bit.

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

    def cache(self) -> BlockCache:
        """Run the block again."""
        rng = copy.deepcopy(self.rng)  # a new copy, because backward may be called more than once
        return self.block.forward(self.x, rng=rng, **self.inputs)[1]


class Recomputed:
    """A block that runs again in the backward."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def forward(self, x: np.ndarray, rng: np.random.Generator | None, **inputs: Any) -> tuple[np.ndarray, SavedInput]:
        saved = SavedInput(self.block, x, inputs, copy.deepcopy(rng))
        return self.block.forward(x, rng=rng, **inputs)[0], saved

    def backward(self, dy: np.ndarray, saved: SavedInput) -> tuple[Any, ...]:
        return self.block.backward(dy, saved.cache())
