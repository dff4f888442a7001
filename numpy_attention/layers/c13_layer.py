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

`layer.parameters()` returns them all, by name. The appendix finds the arrays, and copies, freezes and replaces them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.errors import FLOATS, dtype_error, require_generator
from numpy_attention.layers.c13a_arrays import Arrays

Parameters = dict[str, np.ndarray]


class Layer(Arrays):
    """A layer owns parameters; every kind of layer defines its own `forward` and `backward`."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]


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
