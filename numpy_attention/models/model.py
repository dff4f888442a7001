"""Chapter 21, appendix. A model: a stack between an embedding and a head, with a loss on top

Every model has two pairs of a forward and its backward:

    loss,   cache = model.loss(*inputs, targets)      grads  = model.backward(cache)
    logits, cache = model.forward(*inputs)            stream = model.gradients_from_logits(cache, dlogits)

The first is for training. `training=True` lets `rng` draw the dropout, and smooths the labels where the configuration
says so; without it `rng` is not used. `backward` is the dict of `model.gradients(cache)`, a stream that yields each
gradient with its name and keeps none. The second is for losses of one's own; `dict(...)` makes its stream a dict.
"""

from __future__ import annotations

import dataclasses
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from numpy_attention.errors import InputError, mismatches, several, value_error
from numpy_attention.layers.layer import Layer, Parameters
from numpy_attention.models.head import LOGITS_AT_ONCE, LossByRows, LossOfHead
from numpy_attention.models.stack import Stream
from numpy_attention.ops.linear_cross_entropy import LinearCrossEntropyCache
from numpy_attention.ops.losses import cross_entropy_backward
from numpy_attention.pieces import non_finite


class LossCache(NamedTuple):
    """What backward needs of a loss."""

    forward: Any  # the cache of the model's forward
    cross_entropy: LossOfHead


class Model(Layer):
    """A layer with a configuration, `model.config`, from which it can be built again.

    Two more attributes say how it trains, not what it is. They are set where memory is short, and change no result but
    for the last digits of a loss by rows:

        model.recompute = True            a forward keeps of every block its input alone (Chapter 21)
        model.logits_at_once = 2**20      of a loss that has more logits, so many are in memory at a time
    """

    config: Any
    config_class: ClassVar[Any]
    recompute: bool = False
    logits_at_once: int = LOGITS_AT_ONCE

    def __init__(self, config: Any, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        raise NotImplementedError(f"{type(self).__name__} must build its layers")

    def gradients_from_logits(self, cache: Any, dlogits: Any) -> Stream:
        """A stream of the gradient of every parameter with its name, given that of the logits.

        `dlogits` is an array, or for a model whose loss makes no logits also a `LossByRows`.
        """
        raise NotImplementedError(f"{type(self).__name__} must know its own backward")

    def gradients(self, cache: LossCache, dloss: float = 1.0) -> Stream:
        """A stream of the gradients of dloss * loss, each with its name, as soon as it is known."""
        of_loss = cache.cross_entropy
        if isinstance(of_loss, LinearCrossEntropyCache):
            return self.gradients_from_logits(cache.forward, LossByRows(dloss, of_loss))
        # loss = cross_entropy(logits, targets)
        return self.gradients_from_logits(cache.forward, cross_entropy_backward(dloss, of_loss))

    def backward(self, cache: LossCache, dloss: float = 1.0) -> Parameters:
        """All gradients of dloss * loss, named and ordered like the parameters."""
        grads = dict(self.gradients(cache, dloss))
        return {name: grads[name] for name in self.parameters()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write configuration and parameters to one `.npz` file, whole or not at all.

        Raises: ValueError for a model of which something is frozen, and would be left out, or that `load` would refuse:
        one that holds a NaN or an infinity, or other arrays than its configuration builds.
        """
        from numpy_attention.files import save_arrays  # here, that `import numpy_attention` stays quick

        op = f"{type(self).__name__}.save"
        if left_out := len(self.frozen_arrays()):
            fix = "call merge_low_rank if they came with add_low_rank (export_safetensors writes these), else unfreeze"
            raise ValueError(f"{op}: {left_out} arrays are frozen and would be left out; {fix}")
        parameters = self.parameters()
        anew = type(self)(self.config, None, next(iter(parameters.values())).dtype)  # zeros: no memory is touched
        if wrong := mismatches(anew.parameters(), parameters, "model that its configuration builds"):
            raise ValueError(f"{op}: the parameters must be those of the configuration, got others: {several(wrong)}")
        require_finite_parameters(op, parameters)
        arrays = {f"parameters.{name}": p for name, p in parameters.items()}
        save_arrays(path, arrays, {"class": type(self).__name__, "model": dataclasses.asdict(self.config)})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The model that `save` wrote, or that a training checkpoint holds; on the host, in its own dtype.

        Raises: InputError, in one line, for a damaged file or one that holds another model.
        """
        from numpy_attention.files import config_from, load_arrays, read_into

        arrays, meta = load_arrays(path)
        arrays = {name: array for name, array in arrays.items() if name.startswith("parameters.")}
        if meta.get("class", cls.__name__) != cls.__name__:
            raise InputError(f"{path} holds a {meta['class']}, not a {cls.__name__}; load it with {meta['class']}.load")
        try:
            config = config_from(cls.config_class, meta["model"])
            # A first look, at the gammas alone, before anything is built; all sizes are compared with the arrays after.
            if config.num_layers * config.d_model > sum(array.size for array in arrays.values()):
                raise ValueError("its sizes are not those of its arrays")
            model = cls(config, None, next(iter(arrays.values())).dtype)
        except (TypeError, ValueError, KeyError, MemoryError) as error:
            raise InputError(f"{path} cannot be loaded: its description of a model does not hold: {error}") from None
        read_into(model.parameters(), arrays, "parameters.", "model")
        return model


def require_finite_parameters(op: str, parameters: Parameters) -> None:
    """Refuse what no reader would take, before it is written, perhaps over a good file.

    Raises: ValueError that names the first NaN or infinity.
    """
    for name, p in parameters.items():
        if value := non_finite(p):
            raise value_error(op, name, "finite", value, "go back to a model from before it came")
