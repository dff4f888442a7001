"""Chapter 38, continued. Places: a layer that lets through what flows, and may change it

A place stands before a block or a norm, behind a feed-forward network, or between the heads of an attention and w_o.
For the last the attention of Chapter 17 is run with the identity in the place of w_o: then it gives out what its heads
say. That passes the place, and is multiplied with the real w_o afterwards.

A layer with a place returns the cache, the parameters and the names of the layer alone, so that a block calls it as it
would call that.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import shown, value_error
from numpy_attention.inside.edits import Edit, EditCache, edit, edit_backward
from numpy_attention.layers.layer import Layer, Parameters, named
from numpy_attention.layers.linear import project, project_backward
from numpy_attention.layers.multi_head_attention import MultiHeadAttention, MultiHeadAttentionCache
from numpy_attention.ops.heads import concat_heads, concat_heads_backward, split_heads

Activations = dict[str, np.ndarray]
FEW = 8  # places that an error names


def no_place(op: str, argument: str, name: object, places: Collection[str]) -> ValueError:
    """The error for a name that no place of a model has, with some that there are and the nearest."""
    few = [*places] if len(places) <= FEW else [*[*places][: FEW // 2], "...", [*places][-1]]
    near = difflib.get_close_matches(str(name)[:80], places, 1)
    fix = f"did you mean {near[0]!r}?" if near else ""
    return value_error(op, argument, f"by the names {', '.join(few)}", shown(name), fix)


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
        o, cache = self._heads().forward(x, **options)  # (B, T_q, H d_v)
        o, _ = split_heads(o, self.layer.num_heads)  # (B, H, T_q, d_v)
        o = self.place.forward(o)
        o, heads_o = concat_heads(o)  # (B, T_q, H d_v)
        y, linear_o = project(o, self.layer.w_o, self.layer.b_o)  # (B, T_q, d_model)
        return y, cache._replace(heads_o=heads_o, linear_o=linear_o)

    def backward(self, dy: np.ndarray, cache: MultiHeadAttentionCache) -> tuple[Any, ...]:
        # y = o @ w_o + b_o
        do, dw_o, db_o = project_backward(dy, self.layer.w_o, cache.linear_o)  # (B, T_q, H d_v)
        # o = concat_heads(place(o))
        do = self.place.backward(concat_heads_backward(do, cache.heads_o))  # (B, H, T_q, d_v)
        # o = split_heads(heads(x))
        do = concat_heads(do)[0]  # (B, T_q, H d_v)
        heads = self._heads()
        *dx, grads = heads.backward(do, cache._replace(linear_o=project(do, heads.w_o)[1]))
        return *dx, {**grads, **named({"w_o": dw_o, "b_o": db_o})}

    def _heads(self) -> MultiHeadAttention:
        """The attention with the identity in the place of w_o: what it gives is what its heads say."""
        heads = copy.copy(self.layer)
        heads.w_o, heads.b_o = Identity(), None
        return heads


class Identity(Layer):
    """y = x: multiplying by a matrix would carry a NaN from one head to all."""

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, None]:
        return x, None

    def backward(self, dy: np.ndarray, cache: None) -> tuple[np.ndarray, Parameters]:
        return dy, {}
