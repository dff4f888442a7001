"""Chapter 13. A layer: parameters, and the two functions that use them

Part I was made of functions. A layer adds the one thing a function has not: parameters that stay from call to call.

    y, cache  = layer.forward(x)            y  = f(x, theta)
    dx, grads = layer.backward(dy, cache)   dx = dy df/dx,   grads = dy df/dtheta, a dict named like the parameters

Everything the backward needs travels in the cache, nothing is left on the layer. So a layer may be applied twice
before either backward runs, and its two gradients are added by whoever applied it twice:

    y_1, cache_1 = layer.forward(x_1)       theta is used in two places, so by the chain rule
    y_2, cache_2 = layer.forward(x_2)       dtheta = dy_1 df(x_1, theta)/dtheta + dy_2 df(x_2, theta)/dtheta

An `rng` has two uses. Given to a constructor it draws the first weights (None: zeros, to be loaded); given to a
forward it draws the dropout (None: there is no dropout).

Parameters are plain attributes: `layer.w` is the array itself. Layers inside a layer are attributes too, and their
names are joined by dots, as the path one would write in Python: `blocks.0.attention.w_q`. Nothing is registered.

An array that is frozen takes part in both functions and stays as it is: `parameters` leaves it out. Its gradient need
not be computed, and where a backward gives it all the same, nobody asks for it (Chapter 37 makes use of that).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import numpy as np

from numpy_attention.backend import NumPyBackend
from numpy_attention.errors import (
    FLOATS,
    dtype_error,
    mismatches,
    require_array,
    require_generator,
    several,
)

Parameters = dict[str, np.ndarray]


class Layer:
    """The owner of some parameters; `forward` and `backward` are written out in every layer anew."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    frozen: Collection[str] = ()  # arrays of its own that do not learn

    def arrays(self, prefix: str = "") -> Iterator[tuple[str, Layer, str]]:
        """Every array under this layer: its dotted name, the layer that owns it, and its name there."""
        for name, value in vars(self).items():
            if isinstance(value, Layer):
                yield from value.arrays(f"{prefix}{name}.")
            elif isinstance(value, list):
                for i, layer in enumerate(value):
                    yield from layer.arrays(f"{prefix}{name}.{i}.")
            elif hasattr(value, "shape") and not isinstance(value, np.generic):  # a number of NumPy is a setting
                yield prefix + name, self, name

    def parameters(self) -> Parameters:
        """All that learn, by dotted name: the live arrays, so that `p[...] = value` changes the layer."""
        return {dotted: getattr(owner, name) for dotted, owner, name in self.arrays() if name not in owner.frozen}

    def frozen_arrays(self) -> list[str]:
        """The dotted names of the arrays that do not learn: what `parameters` leaves out."""
        return [dotted for dotted, owner, name in self.arrays() if name in owner.frozen]

    def freeze(self) -> None:
        """From now on nothing under this layer learns: `parameters` is empty, until a part is put in that does."""
        for _, owner, name in list(self.arrays()):
            owner.frozen = {*owner.frozen, name}

    def unfreeze(self) -> None:
        """From now on everything under this layer learns, but for what a class of its own holds frozen."""
        for _, owner, _ in list(self.arrays()):
            vars(owner).pop("frozen", None)  # what is left is that of its class

    def num_parameters(self) -> int:
        """How many numbers the layer learns; one that is used in two places is counted once."""
        return sum(p.size for p in {id(p): p for p in self.parameters().values()}.values())

    def load_parameters(self, new: Parameters) -> None:
        """Copy new values into the parameters; names, shapes and dtypes must all agree.

        Raises: ValueError that lists the differences, as many as fit, with nothing changed; TypeError for what is no
        array.
        """
        _check_loaded(type(self).__name__, new)
        own = self.parameters()
        if wrong := mismatches(own, new, "layer"):
            raise ValueError(f"{type(self).__name__}: the parameters do not fit: {several(wrong)}")
        for name, p in own.items():
            p[...] = np.asarray(new[name], like=p)

    def to(self, backend: NumPyBackend) -> Self:
        """Move every array to where the backend keeps its own, and give back the layer: `model.to(gpu)`.

        Make the optimizer afterwards, since it holds on to the arrays it is given.
        """
        self.replace_parameters(lambda _, p: backend.asarray(p))
        return self

    def replace_parameters(self, replace: Callable[[str, np.ndarray], np.ndarray]) -> None:
        """Put `replace(name, p)` in the place of every array p, frozen or not: arrays on a GPU, or another dtype."""
        for dotted, owner, name in list(self.arrays()):
            setattr(owner, name, replace(dotted, getattr(owner, name)))


def prefixed(prefix: str, arrays: Parameters) -> Parameters:
    """The same arrays under `prefix.name`: how the gradients of a layer inside a layer get their full names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def named(grads: dict[str, Any]) -> Parameters:
    """The gradients of a layer, without those of biases that are off; a dict counts as a layer inside the layer."""
    found: Parameters = {}
    for name, gradient in grads.items():
        if isinstance(gradient, dict):
            found |= prefixed(name, gradient)
        elif gradient is not None:
            found[name] = gradient
    return found


def normal(
    rng: np.random.Generator | None, shape: tuple[int, ...], scale: float, dtype: Any = np.float32
) -> np.ndarray:
    """A matrix of normal numbers with standard deviation `scale`; without an rng zeros, to be filled by the caller.

    Drawn in float64 and then rounded, so that a float32 and a float64 model of one seed start alike.

    Raises: TypeError for a seed in the place of a generator, or a dtype other than float16, float32 and float64.
    """
    require_generator("normal", "rng", rng)
    if np.dtype(dtype) not in FLOATS:
        raise dtype_error("normal", "dtype", "np.float16, np.float32 or np.float64", np.dtype(dtype))
    if rng is None:
        return np.zeros(shape, dtype)
    return (rng.standard_normal(shape) * scale).astype(dtype)


def glorot(d_in: int, d_out: int) -> float:
    """The standard deviation that keeps the variance of x @ w and of dy @ w.T near that of x and dy.

    Formula: scale = sqrt(2 / (d_in + d_out))

    Source: Glorot, Bengio, Understanding the Difficulty of Training Deep Feedforward Neural Networks (2010),
    equation 12.
    """
    return math.sqrt(2.0 / (d_in + d_out))


def _check_loaded(layer: str, new: Parameters) -> None:
    if not isinstance(new, dict):
        raise dtype_error(layer, "new", "a dict of arrays", type(new).__name__)
    for name, array in new.items():
        require_array(layer, f"new[{name!r}]", array)
