"""Chapter 41. Attribution and its error: what a patch would change, without patching

Activation patching puts what a head said at one position in another run into this one, and measures what becomes of
the end (Chapter 38). It is the experiment itself, and it costs a forward for every head and position. With L for the
measured number, x for what stands at the place and D for the difference that the patch makes to it,

    L(x + D) = L(x) + g . D + 1/2 D . H D + ...          g, H: first and second derivatives of L at x

One backward gives g at all places at once, and so a first estimate of every patch: g . D, **attribution patching**.
It is wrong by what is curved between x and x + D: a softmax that is nearly full cannot rise, whatever its slope was
before; a norm divides by what the patch has changed as well.

The second term is the largest part of that error as long as D is small enough. H is never built: a step into the
complex plane along D makes H D of the very backward that made g (the checker's `hvp`), exact to the last digits, at
the price of one more run for each patch. So it saves no time beside the experiment. It explains the error: what is
curvature, and what is further away than any slope at x can see.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_float, require_number, shape_error, value_error
from numpy_attention.gradcheck import hvp_layer
from numpy_attention.inside.edits import Edit
from numpy_attention.inside.places import Activations
from numpy_attention.inside.run import backward_with, forward_with, replacing
from numpy_attention.layers.layer import Layer, Parameters

AT_ONCE = 2**25  # numbers in the results of a batch of patched runs


def patching_effects(
    model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None = None
) -> Activations:
    """What it changes to put each head's answer at each position from another run into this one, by experiment.

    Formula: effect = sum(dy * (y(x + D) - y(x))), D = x_other - x at one head and position

    Shapes: ids and other_ids (1, T), dy as the model's result, (1, T, V) of a GPT -> {place: (H, T)}, for a place that
    is no attention {place: (T,)}; without places, all attentions

    Units: those of y; dy says what is measured: with 1 at one logit and -1 at another it is their difference

    Raises: ValueError for texts that are not one each, of one length, a dy of another shape, or no place.

    Source: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020), section 3;
    Wang et al., Interpretability in the Wild (2023), section 3.
    """
    pair = _pair(model, ids, other_ids, dy, places)
    effects: Activations = {}
    for name, x in pair.at.items():
        found = [
            ((forward_with(model, {name: change}, few)[0] - pair.y) * dy).reshape(len(few), -1).sum(1)
            for few, change in _patches(name, pair, ids)
        ]
        effects[name] = np.concatenate(found).reshape(x.shape[1:-1])
    return effects


def attributed_effects(
    model: Any,
    ids: np.ndarray,
    other_ids: np.ndarray,
    dy: np.ndarray,
    places: Collection[str] | None = None,
    order: int = 1,
) -> Activations:
    """The same, estimated at the run as it is: by its slope, and with `order=2` by its curvature too.

    Formula: g . D, and with order 2: g . D + 1/2 D . H D

    Shapes: as `patching_effects`

    Raises: ValueError for an order that is neither 1 nor 2, or what `patching_effects` refuses.

    Source: Nanda, Attribution Patching (2023), neelnanda.io; Kramár et al., AtP* (2024), section 2; H D: Pearlmutter,
    Fast Exact Multiplication by the Hessian (1994).
    """
    require_number("attributed_effects", "order", order, at_least=1, at_most=2, whole=True)
    pair = _pair(model, ids, other_ids, dy, places)
    d_at, _ = backward_with(dy, forward_with(model, {}, ids)[1])
    effects: Activations = {}
    for name, x in pair.at.items():
        step = pair.other[name] - x
        effects[name] = (d_at[name] * step).sum(-1)[0]
        if order == 2:
            effects[name] = effects[name] + _curvature(model, name, ids, step, dy).astype(x.dtype)
    return effects


class Pair(NamedTuple):
    """Two runs, of which one lends its activations to the other."""

    at: Activations  # of the places that are looked at
    other: Activations
    y: np.ndarray


class _Shifted(Layer):
    """The model as a layer of what is added at one place: the checker makes complex numbers of it."""

    def __init__(self, model: Any, name: str, ids: np.ndarray) -> None:
        self.model, self.name, self.ids = model, name, ids
        self.ids_held = (ids,)

    def forward(self, add: np.ndarray) -> tuple[np.ndarray, Any]:
        return forward_with(self.model, {self.name: Edit(add=add)}, self.ids_held[0])

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, Parameters]:
        d_at, grads = backward_with(dy, cache)
        return d_at[self.name], {f"model.{name}": grad for name, grad in grads.items()}


def _curvature(model: Any, name: str, ids: np.ndarray, step: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """1/2 D . H D for every head and position by itself: each is a text of one batch."""
    x_shape, n = step.shape[1:], math.prod(step.shape[1:-1])
    one_each = np.eye(n, dtype=bool).reshape(n, *x_shape[:-1], 1)
    steps = np.where(one_each, step, 0.0)  # (n, H, T, d_v)
    shifted = _Shifted(model, name, np.repeat(ids, n, axis=0))
    moved = hvp_layer(shifted, {"add": np.zeros_like(steps)}, {"add": steps}, dy=np.repeat(dy, n, axis=0))["add"]
    return 0.5 * np.asarray((moved * steps).reshape(n, -1).sum(1)).reshape(x_shape[:-1])


def _patches(name: str, pair: Pair, ids: np.ndarray) -> Iterator[tuple[np.ndarray, Edit]]:
    """The patches of a place, one head and position each, as many in a batch as fit."""
    x, other = pair.at[name], pair.other[name]
    n = math.prod(x.shape[1:-1])
    at_once = max(1, AT_ONCE // pair.y.size)
    for start in range(0, n, at_once):
        few = range(start, min(start + at_once, n))
        where = np.zeros((len(few), n), bool)
        where[range(len(few)), few] = True
        where = where.reshape(len(few), *x.shape[1:-1], 1)
        yield np.repeat(ids, len(few), axis=0), replacing(where, other)


def _pair(model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None) -> Pair:
    """Both runs, once their texts fit."""
    if np.ndim(ids) != 2 or len(ids) != 1 or np.shape(other_ids) != np.shape(ids):
        got = f"{np.shape(ids)} and {np.shape(other_ids)}"
        raise shape_error("patching", "ids and other_ids", "(1, T), one text each, of one length", got)
    y, cache = forward_with(model, {}, ids)
    require_float("patching", y=y, dy=dy)
    if dy.shape != y.shape:
        raise shape_error("patching", "dy", f"{y.shape}, as the model's result", dy.shape)
    other = forward_with(model, {}, other_ids)[1].at
    names = [name for name in cache.at if name.endswith("attention")] if places is None else list(places)
    for name in names:
        if name not in cache.at:
            raise value_error("patching", "places", f"of {', '.join(cache.at)}", repr(name))
    return Pair({name: cache.at[name] for name in names}, {name: other[name] for name in names}, y)
