"""Chapter 38, continued. A model with edits: an intervention is a function between two lines

The layers of a model are attributes, and a layer is whatever has a forward and a backward. So an edit needs no hooks:
a copy of the model gets, at each place where something can be looked at, a layer that lets it through, and may change
it (Chapter 38). The arrays are those of the model itself; the model stays as it is.

    place                   what flows there                                             shape
    blocks.i                the residual stream that enters block i                      (B, T, d_model)
    blocks.i.attention      the answers of its heads, before w_o puts them together      (B, H, T, d_v)
    blocks.i.feed_forward   what its feed-forward network adds to the stream             (B, T, d_model)
    norm                    the residual stream that enters the last norm                (B, T, d_model)

An encoder-decoder has them twice, `encoder.blocks.0` and `decoder.blocks.0`, and `decoder.blocks.0.cross_attention`.

Whatever passes a place is noted on the way up, and its gradient on the way down: with y for the model's result,
`cache.at[place]` is x, and `d_at[place]` is the slope of sum(dy * y) for it. If another x were patched into this run,
sum(d_at * (x_other - x)) says to first order what that would change (Chapter 41).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import (
    dtype_error,
    require_bools,
    require_cotangent,
    require_float,
    require_size,
    shape_error,
    value_error,
)
from numpy_attention.inside.edits import Edit
from numpy_attention.inside.places import (
    Activations,
    Place,
    WatchedHeads,
    WatchedInput,
    WatchedOutput,
    beside,
    no_place,
    require_unedited,
)
from numpy_attention.layers.layer import Parameters
from numpy_attention.models.model import Model
from numpy_attention.models.stack import Stack


class RunCache(NamedTuple):
    """What backward needs of a run; `at` holds what passed each place, after its edit."""

    at: Activations
    model: Any  # with the edits
    forward: Any  # the cache of its forward
    gradients: Activations  # filled while the backward runs, and empty again after it
    shape: tuple[int, ...] = ()  # of y
    dtype: np.dtype | None = None


def forward_with(
    model: Any, edits: Mapping[str, Edit], *inputs: np.ndarray, **options: Any
) -> tuple[np.ndarray, RunCache]:
    """`model.forward(*inputs, **options)` with edits, by the names of places; none of them only looks on.

    Shapes: as the model's own forward

    Raises: ValueError for a name that is no place of this model, an edit that does not fit what flows there, or a model
    that has edits already; TypeError for what is no model, no Edit, or an edit of another dtype.

    Source: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020), section 3.

    >>> from numpy_attention import GPT, GPTConfig
    >>> model = GPT(GPTConfig(5, 4, d_model=4, num_heads=2, num_layers=1), np.random.default_rng(0))
    >>> silent = replacing(one_head(1, 2))
    >>> logits, cache = forward_with(model, {"blocks.0.attention": silent}, np.array([[3, 1, 4]]))
    >>> cache.at["blocks.0.attention"].shape, float(np.abs(cache.at["blocks.0.attention"][:, 1]).max())
    ((1, 2, 3, 2), 0.0)
    """
    cache = RunCache({}, None, None, {})
    edited = _with_places(model, edits, cache)
    y, of_forward = edited.forward(*inputs, **options)
    return y, cache._replace(model=edited, forward=of_forward, shape=y.shape, dtype=y.dtype)


def backward_with(dy: np.ndarray, cache: RunCache) -> tuple[Activations, Parameters]:
    """Gradients of `forward_with`: of what stood at each place, and of every parameter, both by name.

    Shapes: dy as y -> d_at as `cache.at`, grads as `model.parameters()`
    """
    require_cotangent("backward_with", "dy", dy, cache.shape, cache.dtype)
    grads = dict(cache.model.gradients_from_logits(cache.forward, dy))
    d_at = {name: cache.gradients.pop(name) for name in cache.at}  # so the cache is again as it was
    return d_at, {name: grads[name] for name in cache.model.parameters()}


def with_edits(model: Any, edits: Mapping[str, Edit]) -> Any:
    """The model with edits, on the arrays of the model itself: its `loss`, `generate` and so on run with them.

    Raises: ValueError for a name that is no place of this model, or a model that has edits already; TypeError for what
    is no model, or no Edit.
    """
    return _with_places(model, edits, RunCache({}, None, None, {}))


def one_head(head: int, num_heads: int) -> np.ndarray:
    """A mask that is True at one head alone, as `keep` and `where` take it.

    Shapes: -> (num_heads, 1, 1)

    Raises: TypeError or ValueError for a head that is not from 0 to num_heads - 1.

    >>> one_head(1, 3).ravel().tolist()
    [False, True, False]
    """
    require_size("one_head", "num_heads", num_heads)
    head = require_size("one_head", "head", head, at_least=0)
    if head >= num_heads:
        raise value_error("one_head", "head", f"below num_heads = {num_heads}", head)
    return np.arange(num_heads).reshape(-1, 1, 1) == head


def replacing(where: np.ndarray, value: np.ndarray | None = None) -> Edit:
    """The edit that puts a value in the place of what is there, wherever `where` is True; without a value, zeros.

    Shapes: where and value broadcastable to what flows at the place, and with each other

    Raises: TypeError when where is not an array of bool, or value not one of floats; ValueError for shapes that do not
    fit.
    """
    require_bools("replacing", "where", where, "an array of bool", kind="an array of bool")
    if value is None:
        return Edit(~where)
    require_float("replacing", value=value)
    if not all(a == b or 1 in (a, b) for a, b in zip(value.shape[::-1], where.shape[::-1], strict=False)):
        raise shape_error("replacing", "value", f"broadcastable with where {where.shape}", value.shape)
    value = beside(value, where)
    where = beside(where, value)
    return Edit(~where, np.where(where, value, 0.0))


def _with_places(model: Any, edits: Mapping[str, Edit], run: RunCache) -> Any:
    """A copy of the model with a place at every name, each with its edit."""
    _check_edits(model, edits)
    places: list[str] = []

    def place(name: str) -> Place:
        places.append(name)
        return Place(name, edits.get(name, Edit()), run.at, run.gradients)

    model = copy.copy(model)
    for name, part in list(vars(model).items()):
        if isinstance(part, Stack):
            setattr(model, name, copy.copy(part))
            _watch(getattr(model, name), f"{name}.", place)
    if hasattr(model, "blocks"):
        _watch(model, "", place)
    for name in edits:
        if name not in places:
            raise no_place("forward_with", "edits", name, places)
    return model


def _watch(stack: Any, prefix: str, place: Any) -> None:
    """Put places into a stack of blocks, which is a copy."""
    require_unedited("forward_with", stack.blocks)
    blocks = []
    for i, block in enumerate(map(copy.copy, stack.blocks)):
        name = f"{prefix}blocks.{i}"
        before = place(name)
        block.attention = WatchedHeads(block.attention, place(f"{name}.attention"))
        if block.cross_attention is not None:
            block.cross_attention = WatchedHeads(block.cross_attention, place(f"{name}.cross_attention"))
        block.feed_forward = WatchedOutput(block.feed_forward, place(f"{name}.feed_forward"))
        blocks.append(WatchedInput(block, before))
    stack.blocks = blocks
    if stack.norm is not None:
        stack.norm = WatchedInput(stack.norm, place(f"{prefix}norm"))


def _check_edits(model: Any, edits: Any) -> None:
    if not isinstance(model, Model):
        raise dtype_error("forward_with", "model", "a model: GPT, TextEncoder, ...", type(model).__name__)
    if not isinstance(edits, Mapping):
        raise dtype_error("forward_with", "edits", "a dict of Edits by the names of places", type(edits).__name__)
    for name, change in edits.items():
        if not isinstance(change, Edit):
            fix = "replacing(where, value) makes one"
            raise dtype_error("forward_with", f"edits[{name!r}]", "an Edit", type(change).__name__, fix)
