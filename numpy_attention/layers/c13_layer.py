"""Chapter 13. A layer: parameters, and the two functions that use them

Part I consists of functions. A layer adds the one thing that a function does not have: parameters that remain
between calls.

    y, cache  = layer.forward(x)            y  = f(x, theta)
    dx, grads = layer.backward(dy, cache)   dx = dy df/dx,   grads = dy df/dtheta, a dict named like the parameters

Everything the backward needs is in the cache; nothing is stored on the layer. So a layer may run two forwards before
the first backward. The caller must then add the two gradients of each parameter:

    y_1, cache_1 = layer.forward(x_1)       theta is used in two places, so by the chain rule
    y_2, cache_2 = layer.forward(x_2)       dtheta = dy_1 df(x_1, theta)/dtheta + dy_2 df(x_2, theta)/dtheta

An `rng` has two uses. In a constructor it draws the first weights (None: zeros until weights are loaded). In a forward
it draws which elements dropout removes (None: no dropout).

Parameters are plain attributes: `layer.w` is the array itself. Layers inside a layer are attributes too. Their names
are joined by dots, like a path in Python: `blocks.0.attention.w_q`. No parameter has to be registered.

A frozen array is used in forward and backward, but training does not change it: `parameters` leaves it out. A backward
need not compute its gradient (Chapter 37 saves time in this way). If a backward returns the gradient anyway, the
gradient is not used.
"""

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import numpy as np

from numpy_attention.backend import NumPyBackend
from numpy_attention.errors import FLOATS, dtype_error, mismatches, require_array, require_generator, several

Parameters = dict[str, np.ndarray]


class Layer:
    """A layer owns parameters; every kind of layer defines its own `forward` and `backward`."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    frozen: Collection[str] = ()  # names of its arrays that do not learn

    def arrays(self, prefix: str = "") -> Iterator[tuple[str, "Layer", str]]:
        """Every array in this layer: its dotted name, the layer that owns it, and its name in that layer."""
        for name, value in vars(self).items():
            if value is None:  # a part that is off
                continue
            if isinstance(value, Layer):
                yield from value.arrays(f"{prefix}{name}.")
            elif isinstance(value, list):
                for i, layer in enumerate(value):
                    yield from layer.arrays(f"{prefix}{name}.{i}.")
            elif hasattr(value, "shape") and not isinstance(value, np.generic):  # a NumPy scalar is a setting
                yield prefix + name, self, name

    def parameters(self) -> Parameters:
        """All arrays that learn, by dotted name. They are not copies: `p[...] = value` changes the layer."""
        return {dotted: getattr(owner, name) for dotted, owner, name in self.arrays() if name not in owner.frozen}

    def frozen_arrays(self) -> list[str]:
        """The dotted names of the arrays that do not learn; `parameters` leaves them out."""
        return [dotted for dotted, owner, name in self.arrays() if name in owner.frozen]

    def freeze(self) -> None:
        """Freeze all arrays in this layer: `parameters` is then empty, until a layer with new arrays is added."""
        for _, owner, name in list(self.arrays()):
            owner.frozen = {*owner.frozen, name}

    def unfreeze(self) -> None:
        """Let all arrays in this layer learn again, except the arrays that a class itself declares frozen."""
        for _, owner, _ in list(self.arrays()):
            vars(owner).pop("frozen", None)  # the `frozen` of the class remains

    def num_parameters(self) -> int:
        """The number of parameters; an array that is used in two places is counted once."""
        return sum(p.size for p in {id(p): p for p in self.parameters().values()}.values())

    def load_parameters(self, new: Parameters) -> None:
        """Copy new values into the parameters; names, shapes and dtypes must all agree.

        Raises: ValueError that lists the first differences; TypeError when a value is not an array. The parameters are
        unchanged after an error.
        """
        op, own = type(self).__name__, self.parameters()
        if not isinstance(new, dict):
            raise dtype_error(op, "new", "a dict of arrays", type(new).__name__)
        for name, array in new.items():
            require_array(op, f"new[{name!r}]", array)
        if wrong := mismatches(own, new, "layer"):
            raise ValueError(f"{op}: the parameters do not fit: {several(wrong)}")
        for name, p in own.items():
            p[...] = np.asarray(new[name], like=p)

    def to(self, backend: NumPyBackend) -> Self:
        """Copy every array to the device of the backend, and return the layer: `model.to(gpu)`.

        Create the optimizer afterwards, because an optimizer keeps references to the arrays.
        """
        self.replace_parameters(lambda _, p: backend.asarray(p))
        return self

    def replace_parameters(self, replace: Callable[[str, np.ndarray], np.ndarray]) -> None:
        """Replace every array p, frozen or not, by `replace(name, p)`, for example by an array of another dtype."""
        for dotted, owner, name in list(self.arrays()):
            setattr(owner, name, replace(dotted, getattr(owner, name)))


def prefixed(prefix: str, arrays: Parameters) -> Parameters:
    """The same arrays with the names `prefix.name`: the full names of the gradients of a layer inside a layer."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def flat_gradients(grads: dict[str, Any]) -> Parameters:
    """All gradients in one dict, without the None of a bias that is off; an inner dict comes from an inner layer."""
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
    """A matrix of normal numbers with standard deviation `scale`; without an rng zeros that the caller must replace.

    It is drawn in float64, then rounded: with one seed, a float32 and a float64 model start with the same weights.

    Raises: TypeError for a seed in place of a generator, or a dtype other than float32 and float64.
    """
    require_generator("normal", "rng", rng)
    if np.dtype(dtype) not in FLOATS:
        raise dtype_error("normal", "dtype", "np.float32 or np.float64", np.dtype(dtype))
    if rng is None:
        return np.zeros(shape, dtype)
    return (rng.standard_normal(shape) * scale).astype(dtype)


def glorot(d_in: int, d_out: int) -> float:
    """The standard deviation that keeps the variances of x @ w and dy @ w.T near the variances of x and dy.

    Formula: scale = sqrt(2 / (d_in + d_out))

    Source: Glorot, Bengio, Understanding the Difficulty of Training Deep Feedforward Neural Networks (2010),
    equation 12.
    """
    return math.sqrt(2.0 / (d_in + d_out))
