"""The linear map (op: Chapter 1, layer: Chapter 14), with and without bias, for any leading axes."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Build, layer_entry, op_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, stands_in_for
from numpy_attention.layers.linear import Linear
from numpy_attention.ops.linear import LinearCache, linear_backward

CHAPTER = 1


def _layer(bias: bool) -> Build:
    return lambda sizes, rng, dtype: Linear(size_of(sizes, "d_in"), 4, rng, bias=bias, dtype=dtype)


ENTRIES = (
    op_entry("linear", "x: ... d_in, w: d_in d_out, b: d_out", wrong="w+0 b+0 x:int64 w:float32 x[list]"),
    op_entry("linear", "x: B T d_in, w: d_in d_out", "no bias", wrong="w+0 x-1 w[more]"),
    op_entry("linear", "x: N d_in, w: d_in 1, b: 1", "one output"),
    layer_entry(Linear, "", "x: ... d_in", _layer(True), wrong="x-1 x:int64 w+0"),
    layer_entry(Linear, "no bias", "x: B T d_in", _layer(False), wrong="x-1"),
)


def plain_linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """y_j = sum_i x_i w_ij + b_j."""
    y = np.einsum("...i,ij->...j", x, w)
    return y if b is None else y + b


PLAIN = {"linear": plain_linear}


@backward_of("linear", diagnosis="uses only the last row of dy")
def bias_of_the_last_row(dy: Array, cache: LinearCache) -> Any:
    """The bias acts on every row, but only the gradient of the last row is kept.

    Hides: the shape is right, and the bias still learns from one row of each batch.
    """
    dx, dw, db = linear_backward(dy, cache)
    return dx, dw, None if db is None else dy.reshape(-1, dy.shape[-1])[-1].copy()


@backward_of("linear", diagnosis="the sum over the batch axes (0, 1) is missing")
def bias_summed_over_one_axis(dy: Array, cache: LinearCache) -> Any:
    """The bias gradient is summed over the batch but not over time.

    Hides: for two-dimensional input there is no time axis; else (T, d) is broadcast into the bias without an error.
    """
    dx, dw, db = linear_backward(dy, cache)
    return dx, dw, db if db is None or dy.ndim < 2 else dy.sum(axis=0)


@backward_of("linear", diagnosis="a mean instead of a sum")
def bias_averaged(dy: Array, cache: LinearCache) -> Any:
    """The bias gradient is a mean over the rows, but the loss has already divided by their number.

    Hides: the learning rate absorbs the factor; right for a single row.
    """
    dx, dw, db = linear_backward(dy, cache)
    return dx, dw, None if db is None else dy.reshape(-1, dy.shape[-1]).mean(axis=0)


@backward_of("linear", diagnosis="a factor that should be transposed")
def weight_not_transposed(dy: Array, cache: LinearCache) -> Any:
    """The backward multiplies by w instead of its transpose.

    Hides: the shapes agree if w is square.
    """
    _, dw, db = linear_backward(dy, cache)
    return dy @ cache.w, dw, db


@stands_in_for("Linear", diagnosis="is data stored outside the cache")
class InputKeptOnTheLayer(Linear):
    """The cache is stored on the layer, so a second forward overwrites it before the first backward runs.

    Hides: the test uses each layer only once.
    """

    def forward(self, x: Array) -> Any:
        y, cache = super().forward(x)
        self.last_use = (cache,)
        return y, None

    def backward(self, dy: Array, cache: Any) -> Any:
        return super().backward(dy, self.last_use[0])


EXERCISES = (
    Exercise("linear", 2, (
        Try("linear", "x: N d_in, w: d_in d_out, b: d_out", "a batch of rows"),
        Try("linear", "x: B T d_in, w: d_in d_out, b: d_out", "a batch of sequences"),
        Try("linear", "x: ... d_in, w: d_in d_out, b: d_out", "any leading axes"),
    )),
)
