"""Chapter 38, continued. Places: a layer that lets through what flows, and may change it

A place stands before a block or a norm, behind a feed-forward network, or between the two halves of an attention
(Chapter 17), its heads and w_o.

A layer with a place returns the cache, the parameters and the names of the layer alone, so that a block calls it as it
would call that.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import short_repr, value_error
from numpy_attention.inside.edits import Edit, EditCache, edit, edit_backward
from numpy_attention.layers.layer import Layer
from numpy_attention.layers.multi_head_attention import MultiHeadAttentionCache

Activations = dict[str, np.ndarray]
FEW = 8  # places that an error names


def no_place(op: str, argument: str, name: object, places: Collection[str]) -> ValueError:
    """The error for a name that no place of a model has, with some that there are and the nearest."""
    few = [*places] if len(places) <= FEW else [*[*places][: FEW // 2], "...", [*places][-1]]
    near = difflib.get_close_matches(str(name)[:80], places, 1)
    fix = f"did you mean {near[0]!r}?" if near else ""
    return value_error(op, argument, f"by the names {', '.join(few)}", short_repr(name), fix)


class Place:
    """Where an edit acts, and what passes is noted."""

    def __init__(self, name: str, change: Edit, at: Activations, gradients: Activations) -> None:
        self.name, self.change, self.at, self.gradients = name, change, at, gradients

    def forward(self, x: np.ndarray) -> np.ndarray:
        try:
            y, _ = edit(x, *(beside(array, x) for array in self.change))
        except (TypeError, ValueError) as error:
            said = str(error).removeprefix("edit: ")
            raise type(error)(f"forward_with: edits[{self.name!r}].{said}") from None
        self.at[self.name] = y.copy()  # a residual path adds to y in place
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        self.gradients[self.name] = dy
        dx, _ = edit_backward(dy, EditCache(beside(self.change.keep, dy), None, dy.shape, dy.dtype))
        return dx


def beside(array: Any, other: np.ndarray) -> Any:
    """The array where the other one is: what is made on the host, as masks are, goes where the model is."""
    return array if on_host(other) or not on_host(array) else np.asarray(array, like=other)


class Watched(Layer):
    """A layer with a place before or behind it; its cache, its parameters and their names are those of the layer."""

    def __init__(self, layer: Any, place: Place) -> None:
        self.layer, self.place = layer, place

    def arrays(self, prefix: str = "") -> Iterator[tuple[str, Layer, str]]:
        return self.layer.arrays(prefix)


def require_unedited(op: str, blocks: Iterable[Any]) -> None:
    """Refuse a model that has places already: its blocks and norms lie behind them."""
    if any(isinstance(block, Watched) for block in blocks):
        fix = "give the model itself, and all edits in one dict"
        raise value_error(op, "model", "one without edits", "one with", fix)


class WatchedInput(Watched):
    """A block or a norm, with a place on the residual stream before it."""

    def forward(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray, Any]:
        return self.layer.forward(self.place.forward(x), **options)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        dx, *others = self.layer.backward(dy, cache)
        return self.place.backward(dx), *others


class WatchedOutput(Watched):
    """A feed-forward network, with a place behind it."""

    def forward(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray, Any]:
        y, cache = self.layer.forward(x, **options)
        return self.place.forward(y), cache

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        return self.layer.backward(self.place.backward(dy), cache)


class WatchedHeads(Watched):
    """An attention, with a place between its heads and w_o."""

    def forward(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray, MultiHeadAttentionCache]:
        o, cache = self.layer.heads(x, **options)  # (B, H, T_q, d_v)
        y, cache = self.layer.output(self.place.forward(o), cache)
        return y, cache

    def backward(self, dy: np.ndarray, cache: MultiHeadAttentionCache) -> tuple[Any, ...]:
        do, of_output = self.layer.output_backward(dy, cache)  # (B, H, T_q, d_v)
        *dx, of_heads = self.layer.heads_backward(self.place.backward(do), cache)
        return *dx, {**of_output, **of_heads}
