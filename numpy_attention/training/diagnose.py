"""Find the origin of a NaN: repeat the step and check every value that an op or a layer returns.

Python can call a function of ours whenever any function returns (`sys.setprofile`). An inner function returns before
the function that called it, so the first result that is not finite belongs to the op that made the NaN. The layers on
the call stack give its place in the model:

    softmax        returns nan    <- the first: the message names it
    attention      returns nan
    blocks.1.attention            <- the layer around it: named too
    blocks.1
    GPT
"""

import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.layers.layer import Layer
from numpy_attention.pieces import non_finite
from numpy_attention.training.parallel import Batch

NOT_AGAIN = "it does not occur again when the step is repeated"


def first_non_finite(model: Any, shards: Sequence[Batch], rngs: Sequence[np.random.Generator | None]) -> str:
    """A message that names the first parameter, or else the first op and layer, with a NaN or an infinity."""
    for name, p in model.parameters().items():
        if value := non_finite(p):
            return f"the parameter {name} holds {value}"
    found: list[str] = []

    def on_return(frame: FrameType, event: str, value: Any) -> None:
        module, function = str(frame.f_globals.get("__name__")), frame.f_code.co_name
        if event != "return" or found or function.startswith("_"):
            return
        if module.startswith("numpy_attention.ops.") and function not in ops.__all__:
            return  # a helper; the message names the op that called it
        if not module.startswith(("numpy_attention.ops.", "numpy_attention.layers.", "numpy_attention.models.")):
            return
        for array in _results(value, every=function.endswith("backward")):
            if array.dtype.kind == "f" and (value := non_finite(array)):
                place = _layer_around(frame, model)
                found.append(f"{value} first came out of {function}" + (f" in {place}" if place else ""))
                return

    with np.errstate(all="ignore"):
        sys.setprofile(on_return)
        try:
            for shard, rng in zip(shards, rngs, strict=False):
                _, cache = model.loss(*shard, training=True, rng=rng)
                model.backward(cache)
        finally:
            sys.setprofile(None)
    return found[0] if found else NOT_AGAIN


def _results(value: Any, every: bool) -> Iterator[np.ndarray]:
    """The arrays in a returned value; for a forward function only y, since a mask in its cache may be infinite."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _results(item, every)
    elif isinstance(value, tuple) and value:
        for item in value if every else value[:1]:
            yield from _results(item, every)


def _layer_around(frame: FrameType | None, model: Layer) -> str:
    names = _names(model)
    while frame is not None:
        name = names.get(id(frame.f_locals.get("self")))
        if name is not None:
            return name or type(model).__name__
        frame = frame.f_back
    return ""


def _names(layer: Any, prefix: str = "") -> dict[int, str]:
    """The dotted name of each layer inside a layer, by identity."""
    names = {id(layer): prefix.rstrip(".")}
    for name, value in vars(layer).items():
        if isinstance(value, Layer):
            names |= _names(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            for i, item in enumerate(value):
                names |= _names(item, f"{prefix}{name}.{i}.")
    return names
