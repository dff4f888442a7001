"""Exercise: the gradients of a linear map

    y = x w + b        x (..., d_in), w (d_in, d_out), b (d_out,) -> y (..., d_out)

This file has the forward. Write linear_backward(dy, cache), which returns dx, dw, db.

x may have any number of leading axes (axes before the last axis), written "..." above. The shape of x is
(d_in,) or (B, d_in) or (B, T, d_in), and so on.

    python -m numpy_attention grade tutorials/exercises/linear.py            check your function
    python -m numpy_attention grade tutorials/exercises/linear.py --hint 1   the first of three hints
"""

import numpy as np


def linear(x, w, b):
    """Rows x (..., d_in) -> y (..., d_out)."""
    y = np.einsum("...i,ij->...j", x, w) + b
    return y, (x, w)


def linear_backward(dy, cache):
    """dy (..., d_out) -> dx (..., d_in), dw (d_in, d_out), db (d_out,)."""
    x, w = cache
    raise NotImplementedError
