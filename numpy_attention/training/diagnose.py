"""Find the origin of a NaN: repeat the step and check every value that an op or a layer returns.

Python can call a function of ours whenever any function returns (`sys.setprofile`). An inner function returns before
the function that called it, so the first result that is not finite belongs to the op that made the NaN. The layers on
the call stack give its place in the model:

    softmax        returns nan    <- the first: the message names it
    attention      returns nan
    blocks.1.attention            <- the layer around it: named too
    GPT
"""

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.pieces import non_finite
from numpy_attention.training.c28_loop import Batch

NOT_AGAIN = "it does not occur again when the step is repeated"


def first_non_finite(model: Any, shards: Sequence[Batch], rngs: Sequence[np.random.Generator | None]) -> str:
    """A message that names the first parameter, or else the first op and layer, with a NaN or an infinity."""
    for name, p in model.parameters().items():
        if value := non_finite(p):
            return f"the parameter {name} holds {value}"
    layers = {id(layer): name.rpartition(".")[0] or type(layer).__name__ for name, layer, _ in model.arrays()}
    found: list[str] = []

    def on_return(frame: FrameType, event: str, result: Any) -> None:
        if event != "return" or found or not _is_named(frame):
            return
        function, results = frame.f_code.co_name, result if isinstance(result, tuple) else (result,)
        for array in results if function.endswith("backward") else results[:1]:  # a cache may hold an infinite mask
            if hasattr(array, "dtype") and array.dtype.kind == "f" and (value := non_finite(array)):
                around: FrameType | None = frame
                while around and id(around.f_locals.get("self")) not in layers:
                    around = around.f_back
                place = f" in {layers[id(around.f_locals['self'])]}" if around else ""
                found.append(f"{value} first came out of {function}{place}")
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


def _is_named(frame: FrameType) -> bool:
    """Whether a function is an op, or a method of a layer or a model; the message does not name their helpers."""
    module, function = str(frame.f_globals.get("__name__")), frame.f_code.co_name
    if module.startswith("numpy_attention.ops."):
        return function in ops.__all__
    layers = tuple(f"numpy_attention.{part}." for part in ("layers", "models", "recent", "beyond"))
    return module.startswith(layers) and not function.startswith("_")
