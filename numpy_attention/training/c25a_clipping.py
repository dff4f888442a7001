"""Chapter 25, appendix. Clipping: a bound on the norm of the gradient

Sometimes the gradient of one batch has a norm many times larger than usual. One step with this gradient can undo a
thousand good steps. So before the optimizer uses the gradients, we regard those of all parameters as one vector. If the
norm of this vector is above a bound, we scale it down to the bound. For transformers the usual bound is 1.0.

For SGD, clipping bounds the step. Adam divides by the scale of the gradients, so clipping does not bound its step. It
bounds how much one batch can change Adam's running means m and v.

The square of 1e20 is too large for float32. So all elements are divided by the largest one before they are squared:

    norm = m sqrt(sum (g / m)^2)        m = the largest |g|
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.errors import require_arrays, require_number
from numpy_attention.pieces import in_pieces


def global_norm(grads: Mapping[str, np.ndarray]) -> np.ndarray:
    """The joint norm of all gradients, as if they were one long vector, in float64.

    Formula: norm = sqrt(sum over all arrays of g^2), without an overflow of the squares

    Raises: ValueError if there are no gradients.

    >>> float(global_norm({"w": np.array([3.0, 0.0]), "b": np.array([4.0])}))
    5.0
    """
    require_arrays("global_norm", "grads", grads)
    m = np.stack([np.maximum(g.max(), -g.min()) for g in grads.values() if g.size]).max()
    m = np.where((m > 0) & np.isfinite(m), m, 1.0).astype(m.dtype)  # for inf and NaN, the norm is inf or NaN too
    squares: Any = 0.0
    for g in grads.values():
        for (piece,) in in_pieces(g):
            r = piece / m
            squares += np.dot(r, r)
    return m.astype(np.float64) * np.sqrt(squares)


def norm_of_finite_square(grads: Mapping[str, np.ndarray]) -> np.ndarray:
    """The joint norm. It is infinite if its square is too large for the dtype: Adam's v would stay infinite."""
    norm = global_norm(grads)
    largest = np.finfo(next(iter(grads.values())).dtype).max
    return np.where(norm > np.sqrt(largest), np.inf, norm)


def clip_by_global_norm(grads: Mapping[str, np.ndarray], max_norm: float) -> np.ndarray:
    """Scale all gradients in place by one factor so that their joint norm is at most `max_norm`; return the old norm.

    One common factor keeps the direction of the step; clipping each array by its own norm would change the direction.

    Formula: g <- g max_norm / max(norm, max_norm)

    Raises: ValueError if max_norm is not positive, or if there are no gradients.

    Source: Pascanu, Mikolov, Bengio, On the Difficulty of Training Recurrent Neural Networks (2013), section 3.2.

    >>> grads = {"w": np.array([3.0, 0.0]), "b": np.array([4.0])}
    >>> float(clip_by_global_norm(grads, max_norm=1.0)), grads["b"].tolist()
    (5.0, [0.8])
    """
    max_norm = require_number("clip_by_global_norm", "max_norm", max_norm, above=0)
    require_arrays("clip_by_global_norm", "grads", grads, written=True)
    norm = global_norm(grads)
    scale = max_norm / np.maximum(norm, max_norm)  # no `if`: with a GPU, Python would have to wait for the norm
    for g in grads.values():
        g *= scale.astype(g.dtype)
    return norm
