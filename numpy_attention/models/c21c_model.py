"""Chapter 21, appendix. A model: an embedding, a stack, a head, and a loss

Every model has two pairs of forward and backward:

    loss,   cache = model.loss(*inputs, targets)      grads = model.backward(cache)
    logits, cache = model.forward(*inputs)            grads = model.gradients_from_logits(cache, dlogits)

The first pair is for training. With `training=True`, `rng` draws the dropout, and the labels are smoothed if the
configuration has label_smoothing. Without `training=True`, `rng` is not used. The second pair is for your own loss.
"""

import dataclasses
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from numpy_attention.errors import (
    InputError,
    dtype_error,
    mismatches,
    require_array,
    several,
    shape_error,
    value_error,
)
from numpy_attention.layers.c13_layer import Layer, Parameters
from numpy_attention.models.c21b_head import LOGITS_AT_ONCE
from numpy_attention.ops.c11_losses import cross_entropy_backward
from numpy_attention.pieces import non_finite


class LossCache(NamedTuple):
    """What backward needs from the loss."""

    forward: Any  # the cache of the model's forward
    cross_entropy: Any  # the cache of the loss


class Model(Layer):
    """A layer with a configuration, `model.config`; the same configuration builds the same model again.

    Two more attributes save memory in training. They change no result, with one exception: a loss that is computed from
    a few rows of logits at a time may have other last digits.

        model.recompute = True            a forward stores only the input of every block (Chapter 21)
        model.logits_at_once = 2**20      the loss has at most this many logits in memory at a time
    """

    config: Any
    config_class: ClassVar[Any]
    recompute: bool = False
    logits_at_once: int = LOGITS_AT_ONCE

    def __init__(self, config: Any, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement __init__")

    def gradients_from_logits(self, cache: Any, dlogits: np.ndarray) -> Parameters:
        """All gradients, named and ordered like the parameters, given the gradient of the logits."""
        raise NotImplementedError(f"{type(self).__name__} must implement gradients_from_logits")

    def backward(self, cache: LossCache, dloss: float = 1.0) -> Parameters:
        """All gradients of dloss * loss, named and ordered like the parameters."""
        # loss = cross_entropy(logits, targets)
        return self.gradients_from_logits(cache.forward, cross_entropy_backward(dloss, cache.cross_entropy))

    def require_config(self, config: Any) -> Any:
        """Refuse the configuration of another model: its options would be ignored in silence."""
        if type(config) is not self.config_class:
            expected, fix = f"a {self.config_class.__name__}", "each model class has its own configuration class"
            raise dtype_error(type(self).__name__, "config", expected, type(config).__name__, fix)
        return config

    def require_batch(self, argument: str, ids: np.ndarray, T_past: int = 0, d_input: int | None = None) -> None:
        """Refuse an argument that is not a batch of sequences, or sequences longer than the context.

        Raises: ValueError for the shape; TypeError if `ids` is not an array.
        """
        model, longest = type(self).__name__, self.config.context_length
        require_array(model, argument, ids)
        axes = "(B, T)" if d_input is None else f"(B, T, {d_input})"
        if ids.ndim != 2 + (d_input is not None) or ids.shape[1] == 0:
            fix = f"for one sequence, pass {argument}[None]"
            raise shape_error(model, argument, f"{axes} with T at least 1", ids.shape, fix)
        if T_past + ids.shape[1] > longest:
            expected = f"{axes} with T at most the context_length {longest}"
            fix = "cut the sequences into blocks, or build the model with a longer context"
            raise shape_error(model, argument, expected, ids.shape, fix)

    def ordered(self, grads: Parameters) -> Parameters:
        """The gradients of the parameters that learn, in the order of `parameters`."""
        return {name: grads[name] for name in self.parameters()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write configuration and parameters to one `.npz` file (an atomic write).

        Raises: ValueError if arrays are frozen (the file would not contain them), if a parameter is NaN or infinite,
        or if the parameters do not match the configuration. `load` would refuse such a file.
        """
        from numpy_attention.files import save_arrays  # imported here to keep `import numpy_attention` fast

        op = f"{type(self).__name__}.save"
        if left_out := len(self.frozen_arrays()):
            fix = "call merge_low_rank if add_low_rank froze them (export_safetensors writes its changes), or unfreeze"
            raise ValueError(f"{op}: {left_out} arrays are frozen and would be left out; {fix}")
        parameters = self.parameters()
        fresh = type(self)(self.config, None, next(iter(parameters.values())).dtype)  # zeros
        if wrong := mismatches(fresh.parameters(), parameters, "model that its configuration builds"):
            raise ValueError(f"{op}: the parameters do not match the configuration: {several(wrong)}")
        require_finite_parameters(op, parameters)
        arrays = {f"parameters.{name}": p for name, p in parameters.items()}
        save_arrays(path, arrays, {"class": type(self).__name__, "model": dataclasses.asdict(self.config)})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load the model from a file that `save` wrote, or from a training checkpoint.

        The arrays of the model are on the host and have the dtype of the file.

        Raises: InputError if the file is damaged or holds another kind of model.
        """
        from numpy_attention.files import config_from, load_arrays, read_into

        arrays, meta = load_arrays(path)
        arrays = {name: array for name, array in arrays.items() if name.startswith("parameters.")}
        if meta.get("class", cls.__name__) != cls.__name__:
            raise InputError(f"{path} holds a {meta['class']}, not a {cls.__name__}; load it with {meta['class']}.load")
        try:
            config = config_from(cls.config_class, meta["model"])
            # A quick check before the model is built: the gammas alone have num_layers * d_model numbers.
            # Later, read_into checks all sizes.
            if config.num_layers * config.d_model > sum(array.size for array in arrays.values()):
                raise ValueError("its sizes do not fit its arrays")
            model = cls(config, None, next(iter(arrays.values())).dtype)
        except (TypeError, ValueError, KeyError, MemoryError) as error:
            raise InputError(f"{path} cannot be loaded: its description of the model is wrong: {error}") from None
        read_into(model.parameters(), arrays, "parameters.", "model")
        return model


def require_finite_parameters(op: str, parameters: Parameters) -> None:
    """Refuse parameters that `load` would refuse. Called before a file is written, so a good old file is not replaced.

    Raises: ValueError that names the first NaN or infinity.
    """
    for name, p in parameters.items():
        if value := non_finite(p):
            raise value_error(op, name, "finite", value, "load an earlier model with finite parameters")
