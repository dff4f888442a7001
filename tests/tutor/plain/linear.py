"""The plain form of the linear map."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """y_j = sum_i x_i w_ij + b_j."""
    y = np.einsum("...i,ij->...j", x, w)
    return y if b is None else y + b


PLAIN = {"linear": plain_linear}
