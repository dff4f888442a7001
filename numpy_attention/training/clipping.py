"""Chapter 25, appendix. Clipping: a bound on the norm of the gradient

Sometimes the gradient of one batch has a norm many times larger than usual. One step with this gradient can undo a
thousand good steps. So before the optimizer uses the gradients, we regard those of all parameters as one vector. If the
norm of this vector is above a bound, we scale it down to the bound. For transformers the usual bound is 1.0.

For SGD, clipping bounds the step. Adam divides by the scale of the gradients, so clipping does not bound its step. It
bounds how much one batch can change Adam's running means m and v.
"""

from collections.abc import Mapping

import numpy as np

from numpy_attention.errors import require_arrays, require_number


def global_norm(grads: Mapping[str, np.ndarray]) -> np.ndarray:
    """The joint norm of all gradients, as if they were one long vector.

    Formula: norm = sqrt(sum over all arrays of g^2)

    Raises: ValueError if there are no gradients.

    >>> float(global_norm({"w": np.array([3.0, 0.0]), "b": np.array([4.0])}))
    5.0
    """
    require_arrays("global_norm", "grads", grads)
    return np.sqrt(sum(np.dot(g.reshape(-1), g.reshape(-1)) for g in grads.values()))


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
        g *= scale
    return norm
