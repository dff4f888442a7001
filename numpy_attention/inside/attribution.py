"""Chapter 41. Attribution and its error: what a patch would change, without patching

Activation patching puts what a head said at one position in another run into this one, and measures what becomes of
the end (Chapter 38). It is the experiment itself, and it costs a forward for every head and position. With L for the
measured number, x for what stands at the place and D for the difference that the patch makes to it,

    L(x + D) = L(x) + g . D + 1/2 D . H D + ...          g, H: first and second derivatives of L at x

One backward gives g at all places at once, and so a first estimate of every patch: g . D, **attribution patching**.
It is wrong by what is curved between x and x + D: a softmax with one weight near 1 hardly moves at first, and then lets
go; a norm divides by what the patch has changed as well.

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

from numpy_attention.backend import on_host
from numpy_attention.errors import (
    dtype_error,
    require_float,
    require_integers,
    require_number,
    shape_error,
    value_error,
)
from numpy_attention.gradcheck import hvp_layer
from numpy_attention.inside.edits import Edit
from numpy_attention.inside.places import Activations, beside, no_place
from numpy_attention.inside.run import RunCache, backward_with, forward_with, replacing
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.models.model import Model
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.ops.sums import wide

AT_ONCE = 2**25  # numbers in a batch of patched runs: results, looks and activations


def patching_effects(
    model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None = None
) -> Activations:
    """What it changes to put each head's answer at each position from another run into this one, by experiment.

    Formula: effect = sum(dy * (y(x + D) - y(x))), D = x_other - x at one head and position

    Shapes: ids and other_ids (1, T), dy as the model's result, (1, T, V) of a GPT -> {place: (H, T)}, for a place that
    is no attention {place: (T,)}; without places, all attentions

    Units: those of y; dy says what is measured: with 1 at one logit and -1 at another it is their difference

    Raises: ValueError for texts that are not one each, of one length, a dy of another shape, or no place; TypeError for
    a model that reads two texts, ids that are no integers, a dy of another dtype, or places that are no names.

    Source: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020), section 3;
    Wang et al., Interpretability in the Wild (2023), section 3.
    """
    pair = _pair("patching_effects", model, ids, other_ids, dy, places)
    effects: Activations = {}
    for name, x in pair.at.items():
        found = []
        for one_each in _one_each(x.shape[1:-1], pair.at_once):
            few = np.repeat(ids, len(one_each), axis=0)
            change = forward_with(model, {name: replacing(one_each, pair.other[name])}, few)[0] - pair.y
            found.append((wide(change) * pair.dy).reshape(len(few), -1).sum(1))
        effects[name] = np.concatenate(found).reshape(x.shape[1:-1]).astype(x.dtype)
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

    The curvature is made by the checker, on the host: `order=2` takes no model that is on a GPU.

    Raises: ValueError for an order that is neither 1 nor 2, or what `patching_effects` refuses.

    Source: Nanda, Attribution Patching (2023), neelnanda.io; Kramár et al., AtP* (2024), section 2; H D: Pearlmutter,
    Fast Exact Multiplication by the Hessian (1994).
    """
    op = "attributed_effects"
    require_number(op, "order", order, at_least=1, at_most=2, whole=True)
    pair = _pair(op, model, ids, other_ids, dy, places)
    if order == 2 and not on_host(pair.y):
        raise value_error(op, "order", "1 on a GPU", order, "model.to(get_backend()) brings the model to the host")
    d_at, _ = backward_with(pair.dy, pair.cache)
    effects: Activations = {}
    for name, x in pair.at.items():
        step = pair.other[name] - x
        effects[name] = (wide(d_at[name]) * step).sum(-1)[0].astype(x.dtype)
        if order == 2:
            effects[name] = effects[name] + _curvature(model, name, ids, step, pair).astype(x.dtype)
    return effects


class Pair(NamedTuple):
    """Two runs, of which one lends its activations to the other."""

    at: Activations  # of the places that are looked at
    other: Activations
    y: np.ndarray
    dy: np.ndarray
    cache: RunCache  # of the run as it is
    at_once: int  # texts in a batch


class _Shifted(Layer):
    """The model as a layer of what is added at one place: the checker makes complex numbers of it."""

    def __init__(self, model: Any, name: str, ids: np.ndarray) -> None:
        self.model, self.name = model, name
        self.texts = (ids,)  # as an attribute of its own it would count among the layer's arrays

    def forward(self, add: np.ndarray) -> tuple[np.ndarray, Any]:
        return forward_with(self.model, {self.name: Edit(add=add)}, *self.texts)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, Parameters]:
        d_at, grads = backward_with(dy, cache)
        return d_at[self.name], prefixed("model", grads)


def _curvature(model: Any, name: str, ids: np.ndarray, step: np.ndarray, pair: Pair) -> np.ndarray:
    """1/2 D . H D for every head and position by itself: each is a text of a batch."""
    found = []
    for one_each in _one_each(step.shape[1:-1], max(1, pair.at_once // 4)):  # complex numbers, and those of a backward
        n = len(one_each)
        steps = np.where(one_each, step, 0.0)  # (n, H, T, d_v)
        shifted = _Shifted(model, name, np.repeat(ids, n, axis=0))
        more = {"add": np.zeros_like(steps)}
        moved = hvp_layer(shifted, more, {"add": steps}, dy=np.repeat(pair.dy, n, axis=0))["add"]
        found.append((moved * steps).reshape(n, -1).sum(1))
    return 0.5 * np.concatenate(found).reshape(step.shape[1:-1])


def _one_each(shape: tuple[int, ...], at_once: int) -> Iterator[np.ndarray]:
    """Masks that are True at one head and position, (n, H, T, 1), for all of them in turn, a few in a batch."""
    n = math.prod(shape)
    for start in range(0, n, at_once):
        few = np.arange(start, min(start + at_once, n))
        yield (few[:, None] == np.arange(n)).reshape(len(few), *shape, 1)


def _pair(
    op: str, model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None
) -> Pair:
    """Both runs, once their texts fit."""
    if not isinstance(model, Model) or isinstance(model, Seq2Seq):
        raise dtype_error(op, "model", "a model that reads one text: GPT, TextEncoder, ...", type(model).__name__)
    for name, array in (("ids", ids), ("other_ids", other_ids)):
        require_integers(op, name, array, getattr(model.config, "vocab_size", None))
    if ids.ndim != 2 or len(ids) != 1 or other_ids.shape != ids.shape:
        got = f"{ids.shape} and {other_ids.shape}"
        raise shape_error(op, "ids and other_ids", "(1, T), one text each, of one length", got)
    y, cache = forward_with(model, {}, ids)
    require_float(op, y=y, dy=dy)
    if dy.shape != y.shape:
        raise shape_error(op, "dy", f"{y.shape}, as the model's result", dy.shape)
    other = forward_with(model, {}, other_ids)[1].at
    heads = {name: x.shape for name, x in cache.at.items() if name.endswith("attention")}
    if isinstance(places, str) or not (places is None or isinstance(places, Collection)):
        fix = f"[{places!r}]" if isinstance(places, str) else ""
        raise dtype_error(op, "places", "a list of names, or None", type(places).__name__, fix)
    names = list(heads) if places is None else list(places)
    for name in names:
        if not isinstance(name, str) or name not in cache.at:
            raise no_place(op, "places", name, cache.at)
    looks = sum(shape[1] * shape[2] ** 2 for shape in heads.values())
    at_once = max(1, AT_ONCE // (y.size + looks + sum(x.size for x in cache.at.values())))
    at = {name: cache.at[name] for name in names}
    return Pair(at, {name: other[name] for name in names}, y, beside(dy, y), cache, at_once)
