"""Chapter 38, continued. A model with edits: run a model with an intervention

The layers of a model are attributes, and every object with a forward and a backward can be a layer. So an edit needs no
hooks. Instead, a copy of the model gets an extra layer at each place. This layer records the array at the place, and
may edit the array (Chapter 38). The copy shares the parameters of the model; the model does not change.

    place                   array at the place                                           shape
    blocks.i                the residual stream that enters block i                      (B, T, d_model)
    blocks.i.attention      the outputs of its heads, before w_o combines them           (B, H, T, d_v)
    blocks.i.feed_forward   the output of its feed-forward network, before branch norms  (B, T, d_model)
    norm                    the residual stream that enters the last norm                (B, T, d_model)

An encoder-decoder has two sets of places, `encoder.blocks.0`, ... and `decoder.blocks.0`, ..., and also
`decoder.blocks.0.cross_attention`.

The forward records the array x at each place, and the backward records the gradient of x. Let y be the model's result.
Then `cache.at[place]` is x, and `d_at[place]` is the gradient of sum(dy * y) with respect to x. Suppose that x is
replaced by x_other from another run. Then sum(d_at * (x_other - x)) is the first-order estimate of the change of
sum(dy * y) (Chapter 41).
"""

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
from numpy_attention.inside.c38_edits import Edit
from numpy_attention.inside.c38a_places import (
    Activations,
    Place,
    WatchedHeads,
    WatchedInput,
    WatchedOutput,
    require_unedited,
    to_device_of,
    unknown_place,
)
from numpy_attention.layers.c13_layer import Parameters
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c24c_stacks import Stack


class RunCache(NamedTuple):
    """The data of a run that backward needs; `at` holds the array at each place, after its edit."""

    at: Activations
    model: Any  # without the edits
    edits: Mapping[str, Edit]
    forward: Any  # the cache of the forward with the edits
    shape: tuple[int, ...]  # of y
    dtype: np.dtype


def forward_with(
    model: Any, edits: Mapping[str, Edit], *inputs: np.ndarray, **options: Any
) -> tuple[np.ndarray, RunCache]:
    """Run `model.forward(*inputs, **options)` with edits, a dict from place names to `Edit`; {} only records.

    Shapes: as `model.forward`

    Raises: ValueError if a name is not a place of this model, an edit does not fit the array at its place, or the model
    already has edits; TypeError if model is not a model, a value of edits is not an Edit, or an edit has another dtype.

    Source: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020), section 3.

    >>> from numpy_attention import GPT, GPTConfig
    >>> model = GPT(GPTConfig(5, 4, d_model=4, num_heads=2, num_layers=1), np.random.default_rng(0))
    >>> to_zero = replacing(one_head(1, 2))
    >>> logits, cache = forward_with(model, {"blocks.0.attention": to_zero}, np.array([[3, 1, 4]]))
    >>> cache.at["blocks.0.attention"].shape, float(np.abs(cache.at["blocks.0.attention"][:, 1]).max())
    ((1, 2, 3, 2), 0.0)
    """
    at: Activations = {}
    y, of_forward = _with_places(model, edits, at, {}).forward(*inputs, **options)
    return y, RunCache(at, model, dict(edits), of_forward, y.shape, y.dtype)


def backward_with(dy: np.ndarray, cache: RunCache) -> tuple[Activations, Parameters]:
    """Gradients of `forward_with`, by name: of the array at each place, and of every parameter.

    Shapes: dy as y -> d_at as `cache.at`, grads as `model.parameters()`
    """
    require_cotangent("backward_with", "dy", dy, cache.shape, cache.dtype)
    d_at: Activations = {}
    edited = _with_places(cache.model, cache.edits, {}, d_at)  # new places: two threads may use one cache
    grads = edited.gradients_from_logits(cache.forward, dy)
    return {name: d_at[name] for name in cache.at}, grads


def with_edits(model: Any, edits: Mapping[str, Edit]) -> Any:
    """A copy of the model with edits, for `loss`, `generate` and so on; it shares the parameters of the model.

    Raises: ValueError if a name is not a place of this model, or the model already has edits; TypeError if model is not
    a model, or a value of edits is not an Edit.
    """
    return _with_places(model, edits, {}, {})


def one_head(head: int, num_heads: int) -> np.ndarray:
    """A mask that is True only at one head, for `keep` and `where`.

    Shapes: -> (num_heads, 1, 1)

    Raises: TypeError or ValueError if head is not an integer from 0 to num_heads - 1.

    >>> one_head(1, 3).ravel().tolist()
    [False, True, False]
    """
    require_size("one_head", "num_heads", num_heads)
    head = require_size("one_head", "head", head, at_least=0)
    if head >= num_heads:
        raise value_error("one_head", "head", f"below num_heads = {num_heads}", head)
    return np.arange(num_heads).reshape(-1, 1, 1) == head


def replacing(where: np.ndarray, value: np.ndarray | None = None) -> Edit:
    """The edit that replaces x by a value where `where` is True; without a value, by zeros.

    Shapes: where and value broadcastable to the array at the place, and with each other

    Raises: TypeError if where is not an array of bool, or value is not an array of floats; ValueError if the two shapes
    do not fit each other.
    """
    require_bools("replacing", "where", where, "an array of bool", kind="an array of bool")
    if value is None:
        return Edit(~where)
    require_float("replacing", value=value)
    if not all(a == b or 1 in (a, b) for a, b in zip(value.shape[::-1], where.shape[::-1], strict=False)):
        raise shape_error("replacing", "value", f"broadcastable with where {where.shape}", value.shape)
    value = to_device_of(where, value)
    where = to_device_of(value, where)
    return Edit(~where, np.where(where, value, 0.0))


def _with_places(model: Any, edits: Mapping[str, Edit], at: Activations, gradients: Activations) -> Any:
    """A copy of the model with all places and with the edits; the places record into `at` and `gradients`."""
    _check_edits(model, edits)
    places: list[str] = []

    def place(name: str) -> Place:
        places.append(name)
        return Place(name, edits.get(name, Edit()), at, gradients)

    model = copy.copy(model)
    for name, part in list(vars(model).items()):
        if isinstance(part, Stack):
            setattr(model, name, copy.copy(part))
            _watch(getattr(model, name), f"{name}.", place)
    if hasattr(model, "blocks"):
        _watch(model, "", place)
    for name in edits:
        if name not in places:
            raise unknown_place("forward_with", "edits", name, places)
    return model


def _watch(stack: Any, prefix: str, place: Any) -> None:
    """Add places to a copied stack of blocks."""
    require_unedited("forward_with", stack.blocks)
    blocks = []
    for i, block in enumerate(map(copy.copy, stack.blocks)):
        name = f"{prefix}blocks.{i}"
        before = place(name)
        for part in ("attention", "cross_attention"):
            if (attention := copy.copy(getattr(block, part))) is not None:
                attention.w_o = WatchedHeads(attention.w_o, attention.num_heads, place(f"{name}.{part}"))
                setattr(block, part, attention)
        block.feed_forward = WatchedOutput(block.feed_forward, place(f"{name}.feed_forward"))
        blocks.append(WatchedInput(block, before))
    stack.blocks = blocks
    if stack.norm is not None:
        stack.norm = WatchedInput(stack.norm, place(f"{prefix}norm"))


def _check_edits(model: Any, edits: Any) -> None:
    if not isinstance(model, Model):
        raise dtype_error("forward_with", "model", "a model: GPT, TextEncoder, ...", type(model).__name__)
    if not isinstance(edits, Mapping):
        raise dtype_error("forward_with", "edits", "a dict from names of places to Edits", type(edits).__name__)
    for name, change in edits.items():
        if not isinstance(change, Edit):
            fix = "replacing(where, value) makes one"
            raise dtype_error("forward_with", f"edits[{name!r}]", "an Edit", type(change).__name__, fix)
