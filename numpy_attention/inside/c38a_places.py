"""Chapter 38, continued. Places: a layer that records an array, and may edit it

There are three kinds of places: before a block or before the last norm; after a feed-forward network; and in an
attention, after its heads and before its matrix w_o (Chapter 17).
"""

import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import short_repr, value_error
from numpy_attention.inside.c38_edits import Edit, EditCache, edit, edit_backward
from numpy_attention.layers.c13_layer import Layer
from numpy_attention.layers.c14a_project import Matrix, project, project_backward
from numpy_attention.ops.c07_heads import concat_heads, concat_heads_backward, split_heads, split_heads_backward

Activations = dict[str, np.ndarray]
MAX_NAMES = 8  # places in an error message


def unknown_place(op: str, argument: str, name: object, places: Collection[str]) -> ValueError:
    """The error for a name that is not a place of the model; it lists some places and the most similar place."""
    few = [*places] if len(places) <= MAX_NAMES else [*[*places][: MAX_NAMES // 2], "...", [*places][-1]]
    near = difflib.get_close_matches(str(name)[:80], places, 1)
    fix = f"did you mean {near[0]!r}?" if near else ""
    return value_error(op, argument, f"named after places of the model: {', '.join(few)}", short_repr(name), fix)


class Place:
    """A point in the model where an array is edited, and where the array and its gradient are recorded."""

    def __init__(self, name: str, change: Edit, at: Activations, gradients: Activations) -> None:
        self.name, self.change, self.at, self.gradients = name, change, at, gradients

    def forward(self, x: np.ndarray) -> np.ndarray:
        try:
            y, _ = edit(x, *(to_device_of(x, array) for array in self.change))
        except (TypeError, ValueError) as error:
            message = str(error).removeprefix("edit: ")
            raise type(error)(f"forward_with: edits[{self.name!r}].{message}") from None
        # a copy, because a residual path adds to y in place; a backward that recomputes its block does not record again
        self.at.setdefault(self.name, y.copy())
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        self.gradients[self.name] = dy
        dx, _ = edit_backward(dy, EditCache(to_device_of(dy, self.change.keep), None, dy.shape, dy.dtype))
        return dx


def to_device_of(x: np.ndarray, array: Any) -> Any:
    """Copy an array on the host, such as a mask, to the device of x."""
    return array if on_host(x) or not on_host(array) else np.asarray(array, like=x)


class Watched(Layer):
    """A layer together with a place before, inside or after the layer. Its cache, parameters and names are those of the
    layer, so it can replace the layer in a block."""

    def __init__(self, layer: Any, place: Place) -> None:
        self.layer, self.place = layer, place

    def arrays(self, prefix: str = "") -> Iterator[tuple[str, Layer, str]]:
        return self.layer.arrays(prefix)


def require_unedited(op: str, blocks: Iterable[Any]) -> None:
    """Refuse a model that already has places: they wrap its blocks and norms."""
    if any(isinstance(block, Watched) for block in blocks):
        fix = "pass the original model, and all edits in one dict"
        raise value_error(op, "model", "a model without edits", "an edited model", fix)


class WatchedInput(Watched):
    """A block or a norm, with a place on the residual stream before it."""

    def forward(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray, Any]:
        return self.layer.forward(self.place.forward(x), **options)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        dx, *others = self.layer.backward(dy, cache)
        return self.place.backward(dx), *others


class WatchedOutput(Watched):
    """A feed-forward network, with a place after it."""

    def forward(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray, Any]:
        y, cache = self.layer.forward(x, **options)
        return self.place.forward(y), cache

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        return self.layer.backward(self.place.backward(dy), cache)


class WatchedHeads(Watched):
    """The matrix w_o of an attention, with a place before it, where the outputs of the heads are side by side."""

    def __init__(self, w_o: Matrix, num_heads: int, place: Place) -> None:
        self.layer, self.num_heads, self.place = w_o, num_heads, place

    def arrays(self, prefix: str = "") -> Iterator[tuple[str, Layer, str]]:
        return self.layer.arrays(prefix) if isinstance(self.layer, Layer) else iter([(prefix[:-1], self, "layer")])

    def forward(self, o: np.ndarray) -> tuple[np.ndarray, Any]:
        heads, split = split_heads(o, self.num_heads)  # (B, H, T_q, d_v)
        o, concat = concat_heads(self.place.forward(heads))  # (B, T_q, H d_v)
        y, linear = project(o, self.layer)
        return y, (split, concat, linear)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, Any]:
        split, concat, linear = cache
        do, dw_o, _ = project_backward(dy, self.layer, linear)
        return split_heads_backward(self.place.backward(concat_heads_backward(do, concat)), split), dw_o
