"""Chapter 41. Attribution and its error: estimate the effect of a patch without patching

Activation patching takes a head's output at one position from another run, puts this output into this run, and measures
the change of the result (Chapter 38). This experiment needs a forward for every head and position. Let L be the
measure, a weighted sum of the results. Let x be the array at the place, and D the change that the patch makes to x:

    L(x + D) = L(x) + g . D + 1/2 D . H D + ...          g, H: first and second derivatives of L at x

One backward gives g at all places. So one backward gives an estimate, g . D, of the effect of every patch. This method
is called **attribution patching**. The estimate has an error because the slope changes on the way from x to x + D. For
example, a softmax with one weight near 1 hardly changes at first, and then changes fast; and a norm divides by a number
that the patch also changes.

The term with H is the largest part of this error if D is small enough. The matrix H itself is never computed. A complex
step along D in the backward that gives g also gives H D (the checker's `hvp`), exact except for round-off. Each patch
needs one more run, so the estimate with H is not faster than the experiment. Its use is to explain the error of g . D:
how much of this error is curvature, and how much is of higher order.
"""

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
from numpy_attention.inside.c38_edits import Edit
from numpy_attention.inside.c38a_places import Activations, to_device_of, unknown_place
from numpy_attention.inside.c38b_run import RunCache, backward_with, forward_with, replacing
from numpy_attention.layers.c13_layer import Layer, Parameters, prefixed
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c24_seq2seq import Seq2Seq

MAX_BATCH_ELEMENTS = 2**25  # in a batch of patched runs: results, attention weights and activations


def patching_effects(
    model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None = None
) -> Activations:
    """The effect of patching each head's output at each position from another run into this run, by experiment.

    Formula: effect = sum(dy * (y(x + D) - y(x))), D = x_other - x at one head and position

    Shapes: ids and other_ids (1, T), dy as the model's result, (1, T, V) for a GPT -> {place: (H, T)}, or {place: (T,)}
    if the place is not an attention; without places, all attentions

    Units: those of y; dy holds the weights of the measure: 1 at one logit and -1 at another give their difference

    Raises: ValueError unless ids and other_ids hold one text each, of equal length, dy has the shape of the result, and
    places are places of the model; TypeError if the model reads two texts, ids are not integers, dy has another dtype,
    or places is not a list of names.

    Source: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020), section 3;
    Wang et al., Interpretability in the Wild (2023), section 3.
    """
    pair = _pair("patching_effects", model, ids, other_ids, dy, places)
    effects: Activations = {}
    for name, x in pair.at.items():
        found = []
        for masks in _single_masks(x.shape[1:-1], pair.at_once):
            texts = np.repeat(ids, len(masks), axis=0)
            change = forward_with(model, {name: replacing(masks, pair.other[name])}, texts)[0] - pair.y
            found.append((change * pair.dy).reshape(len(texts), -1).sum(1))
        effects[name] = np.concatenate(found).reshape(x.shape[1:-1]).astype(x.dtype)
    return effects


def attributed_effects(
    model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None = None,
    order: int = 1,
) -> Activations:
    """Estimate `patching_effects` from the unpatched run: by the slope, and with `order=2` also by the curvature.

    Formula: g . D, and with order 2: g . D + 1/2 D . H D

    Shapes: as `patching_effects`

    The checker computes the curvature on the host, so `order=2` does not accept a model on a GPU.

    Raises: ValueError if order is neither 1 nor 2; also the errors of `patching_effects`.

    Source: Nanda, Attribution Patching (2023), neelnanda.io; Kramár et al., AtP* (2024), section 2; H D: Pearlmutter,
    Fast Exact Multiplication by the Hessian (1994).
    """
    op = "attributed_effects"
    require_number(op, "order", order, at_least=1, at_most=2, whole=True)
    pair = _pair(op, model, ids, other_ids, dy, places)
    if order == 2 and not on_host(pair.y):
        raise value_error(op, "order", "1 on a GPU", order, "move the model to the host: model.to(get_backend())")
    d_at, _ = backward_with(pair.dy, pair.cache)
    effects: Activations = {}
    for name, x in pair.at.items():
        step = pair.other[name] - x
        effects[name] = (d_at[name] * step).sum(-1)[0]
        if order == 2:
            effects[name] = effects[name] + _curvature(model, name, ids, step, pair).astype(x.dtype)
    return effects


class Pair(NamedTuple):
    """A run, and the activations of another run that are patched into it."""

    at: Activations  # of the selected places
    other: Activations
    y: np.ndarray
    dy: np.ndarray
    cache: RunCache  # of the unpatched run
    at_once: int  # texts in a batch


class _AddAtPlace(Layer):
    """The model as a layer whose input is added at one place; the checker passes complex inputs."""

    def __init__(self, model: Any, name: str, ids: np.ndarray) -> None:
        self.model, self.name = model, name
        self.texts = (ids,)  # in a tuple, so that it does not count as a parameter of the layer

    def forward(self, add: np.ndarray) -> tuple[np.ndarray, Any]:
        return forward_with(self.model, {self.name: Edit(add=add)}, *self.texts)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, Parameters]:
        d_at, grads = backward_with(dy, cache)
        return d_at[self.name], prefixed("model", grads)


def _curvature(model: Any, name: str, ids: np.ndarray, step: np.ndarray, pair: Pair) -> np.ndarray:
    """1/2 D . H D for every head and position separately; each is one text of a batch."""
    found = []
    for masks in _single_masks(step.shape[1:-1], max(1, pair.at_once // 4)):  # complex numbers need more memory
        n = len(masks)
        steps = np.where(masks, step, 0.0)  # (n, H, T, d_v)
        layer = _AddAtPlace(model, name, np.repeat(ids, n, axis=0))
        inputs = {"add": np.zeros_like(steps)}
        h_steps = hvp_layer(layer, inputs, {"add": steps}, dy=np.repeat(pair.dy, n, axis=0))["add"]
        found.append((h_steps * steps).reshape(n, -1).sum(1))
    return 0.5 * np.concatenate(found).reshape(step.shape[1:-1])


def _single_masks(shape: tuple[int, ...], at_once: int) -> Iterator[np.ndarray]:
    """Batches of masks (n, H, T, 1), each True at one head and position, until every head and position has a mask."""
    n = math.prod(shape)
    for start in range(0, n, at_once):
        few = np.arange(start, min(start + at_once, n))
        yield (few[:, None] == np.arange(n)).reshape(len(few), *shape, 1)


def _pair(
    op: str, model: Any, ids: np.ndarray, other_ids: np.ndarray, dy: np.ndarray, places: Collection[str] | None
) -> Pair:
    """Check the arguments, and run the model on both texts."""
    if not isinstance(model, Model) or isinstance(model, Seq2Seq):
        raise dtype_error(op, "model", "a model that reads one text: GPT, TextEncoder, ...", type(model).__name__)
    for name, array in (("ids", ids), ("other_ids", other_ids)):
        require_integers(op, name, array, getattr(model.config, "vocab_size", None))
    if ids.ndim != 2 or len(ids) != 1 or other_ids.shape != ids.shape:
        got = f"{ids.shape} and {other_ids.shape}"
        raise shape_error(op, "ids and other_ids", "(1, T), one text each, of equal length", got)
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
            raise unknown_place(op, "places", name, cache.at)
    weights = sum(shape[1] * shape[2] ** 2 for shape in heads.values())
    at_once = max(1, MAX_BATCH_ELEMENTS // (y.size + weights + sum(x.size for x in cache.at.values())))
    at = {name: cache.at[name] for name in names}
    return Pair(at, {name: other[name] for name in names}, y, to_device_of(y, dy), cache, at_once)
