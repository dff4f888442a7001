"""The cross-entropy of a linear head in little memory (Chapter 12, appendix), with blocks of any size."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, op_entry
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.catalogue.pages.losses import nothing_counts, plain_cross_entropy
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.linear_cross_entropy import LinearCrossEntropyCache, linear_cross_entropy_backward

CHAPTER = 12

ROWS = "x: B T d, table: V d, targets: int<V> B T"
PADDED = "x: N d, table: V d, targets: int<V|-100> N"
REFUSED = (
    "targets+0 targets:float64 targets=-1 targets=999 x-1 x:int64 table-1 table:float32 table[more] x[list]"
)


def _one_hot_softmax_except_last_row(inputs: Arrays, sizes: Sizes) -> Arrays:
    """Makes the softmax of every row 0 and 1, except for the last row, which sets the scale of the gradient."""
    inputs["x"][:-1] *= 300
    return inputs


def _entry(spec: str, variant: str, prepare: Any = None, wrong: str = "", **options: Any) -> Entry:
    return op_entry("linear_cross_entropy", spec, variant, prepare=prepare, wrong=wrong, options=options)


ENTRIES = (
    _entry(ROWS, "one block", wrong=REFUSED),
    _entry(PADDED, "ignore_index, blocks of 2", block_size=2),
    _entry(PADDED, "label smoothing, blocks of 1", block_size=1, label_smoothing=0.3),
    _entry(PADDED, "nothing counts, blocks of 3", prepare=nothing_counts, block_size=3),
    _entry(
        "x: N d, table: V d, targets: int<V> N", "logits of some hundred, blocks of 2", block_size=2,
        prepare=_one_hot_softmax_except_last_row,
    ),
    _entry("x: d, table: V d, targets: int<V>", "one place"),
)


def plain_linear_cross_entropy(x: Array, table: Array, targets: Array, **options: Any) -> Array:
    """Computes all logits, then their loss."""
    options.pop("block_size", None)
    return plain_cross_entropy(np.einsum("...d,vd->...v", x, table), targets, **options)


PLAIN = {"linear_cross_entropy": plain_linear_cross_entropy}


def _blocks(dloss: Any, cache: LinearCrossEntropyCache, mean_of_block: bool) -> list[Any]:
    """dx and dtable of every block of rows; with `mean_of_block` each block divides by its number of counted rows."""
    x, grads = cache.x.reshape(-1, cache.x.shape[-1]), []
    for start in range(0, len(x), cache.block_size):
        rows = slice(start, start + cache.block_size)
        block = cache._replace(x=x[rows], L=cache.L[rows], targets=cache.targets[rows], counted=cache.counted[rows])
        if mean_of_block:
            block = block._replace(num_counted=np.maximum(block.counted.sum(), 1).astype(cache.L.dtype))
        grads.append(linear_cross_entropy_backward(dloss, block))
    return grads


@backward_of("linear_cross_entropy", diagnosis="is the 1/n of a mean missing")
def mean_of_each_block(dloss: Any, cache: LinearCrossEntropyCache) -> Any:
    """Each block divides by its own number of counted positions, not by the number in all blocks.

    Hides: right if one block holds all rows; else the gradient is too large, and the learning rate absorbs the
    factor.
    """
    dx, dtable = zip(*_blocks(dloss, cache, mean_of_block=True), strict=True)
    return np.concatenate(dx).reshape(cache.x.shape), sum(dtable)


@backward_of(
    "linear_cross_entropy",
    diagnosis="only the last time that this line runs",
)
def table_of_the_last_block(dloss: Any, cache: LinearCrossEntropyCache) -> Any:
    """Each block of rows overwrites the gradient of the table instead of adding to it.

    Hides: right if one block holds all rows; dx is always right.
    """
    dx, _ = linear_cross_entropy_backward(dloss, cache)
    return dx, _blocks(dloss, cache, mean_of_block=False)[-1][1]
