"""Chapter 25, appendix. Clipping: no gradient longer than agreed

Now and then a batch has a gradient many times the usual length, and one such step can undo a thousand good ones. So
the gradients of all parameters, taken as one long vector, are shortened to a largest length before the optimizer sees
them. In training runs of transformers 1.0 is the usual one.

For SGD this bounds the step. Adam divides the scale of the gradients out again; there it bounds how much one batch
weighs in the means m and v.
"""

from collections.abc import Mapping

import numpy as np

from numpy_attention.errors import require_arrays, require_number


def global_norm(grads: Mapping[str, np.ndarray]) -> np.ndarray:
    """The joint norm of all gradients, as if they were one long vector.

    Formula: norm = sqrt(sum over all arrays of g^2)

    Raises: ValueError where there are no gradients.

    >>> float(global_norm({"w": np.array([3.0, 0.0]), "b": np.array([4.0])}))
    5.0
    """
    require_arrays("global_norm", "grads", grads)
    norm: np.ndarray = np.sqrt(sum(np.dot(g.reshape(-1), g.reshape(-1)) for g in grads.values()))
    return norm


def clip_by_global_norm(grads: Mapping[str, np.ndarray], max_norm: float) -> np.ndarray:
    """Scale all gradients in place by one factor, so that their joint norm is at most `max_norm`; give the norm before.

    One factor for all keeps the direction of the step; clipping each array by its own norm would bend it.

    Formula: g <- g max_norm / max(norm, max_norm)

    Raises: ValueError when max_norm is not positive, or there are no gradients.

    Source: Pascanu, Mikolov, Bengio, On the Difficulty of Training Recurrent Neural Networks (2013), section 3.2.

    >>> grads = {"w": np.array([3.0, 0.0]), "b": np.array([4.0])}
    >>> float(clip_by_global_norm(grads, max_norm=1.0)), grads["b"].tolist()
    (5.0, [0.8])
    """
    max_norm = require_number("clip_by_global_norm", "max_norm", max_norm, above=0)
    require_arrays("clip_by_global_norm", "grads", grads, written=True)
    norm = global_norm(grads)
    scale = max_norm / np.maximum(norm, max_norm)  # no branch on the norm: on a GPU that would wait for the device
    for g in grads.values():
        g *= scale
    return norm
