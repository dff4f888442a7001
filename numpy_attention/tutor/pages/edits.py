"""A model with an edit at one place."""

from typing import Any

from numpy_attention.inside.c38_edits import Edit
from numpy_attention.inside.c38b_run import RunCache, backward_with, forward_with
from numpy_attention.layers.c13_layer import Layer, Parameters, prefixed
from numpy_attention.ops.c01a_sums import sum_to_shape
from numpy_attention.tutor.entry import Array


class Edited(Layer):
    """A model with an edit at one place, as a layer: a function of the added array and of all parameters."""

    def __init__(self, model: Any, place: str) -> None:
        self.model, self.place = model, place

    def forward(self, keep: Array, add: Array, **inputs: Any) -> tuple[Array, tuple[RunCache, tuple[int, ...]]]:
        """The output of the model (logits or directions), and the cache for the backward."""
        y, cache = forward_with(self.model, {self.place: Edit(keep, add)}, **inputs)
        return y, (cache, add.shape)

    def backward(self, dy: Array, cache: tuple[RunCache, tuple[int, ...]]) -> tuple[Array, Parameters]:
        """dadd and the gradients of all parameters; ids and keep have no gradient."""
        of_run, add_shape = cache
        d_at, grads = backward_with(dy, of_run)
        return sum_to_shape(d_at[self.place], add_shape), prefixed("model", grads)
