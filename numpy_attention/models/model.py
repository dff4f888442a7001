"""Part III, appendix. What every model can do besides: save itself to a file, and come back from one"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.layers.layer import Layer, Parameters

# An argument of every model's backward. With it each group of gradients is handed over as soon as it is known, and none
# is kept: who adds up the gradients of several shards then holds one copy of them, not one a shard.
Receive = Callable[[Parameters], None]


class Model(Layer):
    """A layer with a configuration, `model.config`, from which it can be built again."""

    config: Any
    config_class: ClassVar[Any]

    def __init__(self, config: Any, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        raise NotImplementedError(f"{type(self).__name__} must build its layers")

    def save(self, path: str | PathLike[str]) -> None:
        """Write configuration and parameters to one `.npz` file, whole or not at all."""
        from numpy_attention.files import save_arrays  # here, that `import numpy_attention` stays quick

        arrays = {f"parameters.{name}": p for name, p in self.parameters().items()}
        save_arrays(path, arrays, {"class": type(self).__name__, "model": dataclasses.asdict(self.config)})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The model that `save` wrote, or that a training checkpoint holds; on the host, in its own dtype.

        Raises: `InputError`, in one line, for a damaged file or one that holds another model.
        """
        from numpy_attention.files import config_from, load_arrays, read_into

        arrays, meta = load_arrays(path)
        arrays = {name: array for name, array in arrays.items() if name.startswith("parameters.")}
        if meta.get("class", cls.__name__) != cls.__name__:
            raise InputError(f"{path} holds a {meta['class']}, not a {cls.__name__}; load it with {meta['class']}.load")
        try:
            config = config_from(cls.config_class, meta["model"])
            # The gammas alone are num_layers d_model numbers: nothing is built that the file cannot fill.
            if config.num_layers * config.d_model > sum(array.size for array in arrays.values()):
                raise ValueError("its sizes are not those of its arrays")
            model = cls(config, None, next(iter(arrays.values())).dtype)
        except (TypeError, ValueError, KeyError, MemoryError) as error:
            raise InputError(f"{path} cannot be loaded: its description of a model does not hold: {error}") from None
        read_into(model.parameters(), arrays, "parameters.", "model")
        return model


def as_rows(x: np.ndarray) -> np.ndarray:
    """All vectors of x as the rows of one matrix, so that one large product serves instead of B small ones."""
    return x.reshape(-1, x.shape[-1])


def in_order_of(model: Layer, grads: Parameters) -> Parameters:
    """The gradients in the order of the model's parameters; none, if they were handed over one by one."""
    return {name: grads[name] for name in model.parameters()} if grads else {}
