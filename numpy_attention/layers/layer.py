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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from numpy_attention.backend import NumPyBackend, move
from numpy_attention.errors import differences

Parameters = dict[str, np.ndarray]


class Layer:
    """The owner of some parameters; `forward` and `backward` are written out in every layer anew."""

    def parameters(self) -> Parameters:
        """All parameters by dotted name: the live arrays, so that `p[...] = value` changes the layer."""
        found: Parameters = {}
        for name, value in vars(self).items():
            if isinstance(value, Layer):
                found |= prefixed(name, value.parameters())
            elif isinstance(value, list):
                for i, layer in enumerate(value):
                    found |= prefixed(f"{name}.{i}", layer.parameters())
            elif hasattr(value, "shape"):
                found[name] = value
        return found

    def num_parameters(self) -> int:
        """How many numbers the layer learns; one that is used in two places is counted once."""
        return sum(p.size for p in self.parameters().values())

    def load_parameters(self, new: Parameters) -> None:
        """Copy new values into the parameters; names, shapes and dtypes must all agree.

        Raises: ValueError that lists every difference at once, with nothing changed.
        """
        own = self.parameters()
        if wrong := differences(own, new, "layer"):
            raise ValueError(f"{type(self).__name__}: the parameters do not fit:\n  " + "\n  ".join(wrong))
        for name, p in own.items():
            p[...] = np.asarray(new[name], like=p)

    def to(self, backend: NumPyBackend) -> Self:
        """Move every parameter to where the backend keeps its arrays, and give back the layer: `model.to(gpu)`.

        Make the optimizer afterwards, since it holds on to the arrays it is given.
        """
        moved = move(self.parameters(), backend.asarray)
        self.replace_parameters(lambda name, _: moved[name])
        return self

    def replace_parameters(self, replace: Callable[[str, np.ndarray], np.ndarray], prefix: str = "") -> None:
        """Put `replace(name, p)` in the place of every parameter p: views of one flat buffer, arrays on a GPU."""
        for name, value in vars(self).items():
            if isinstance(value, Layer):
                value.replace_parameters(replace, f"{prefix}{name}.")
            elif isinstance(value, list):
                for i, layer in enumerate(value):
                    layer.replace_parameters(replace, f"{prefix}{name}.{i}.")
            elif hasattr(value, "shape"):
                setattr(self, name, replace(prefix + name, value))


def prefixed(prefix: str, arrays: Parameters) -> Parameters:
    """The same arrays under `prefix.name`: how the gradients of a layer inside a layer get their full names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def normal(
    rng: np.random.Generator | None, shape: tuple[int, ...], scale: float, dtype: Any = np.float32
) -> np.ndarray:
    """A matrix of normal numbers with standard deviation `scale`; without an rng zeros, to be filled by the caller.

    Drawn in float64 and then rounded, so that a float32 and a float64 model of one seed start alike.
    """
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
