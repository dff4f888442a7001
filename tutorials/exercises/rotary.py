"""Exercise: rotary positions from scratch

    y_1 = x_1 cos(a) - x_2 sin(a)        a = t f_i for position t
    y_2 = x_2 cos(a) + x_1 sin(a)        f_i = base^(-2i / d_k), i = 0 ... d_k / 2 - 1

x_1 is column i and x_2 is column i + d_k / 2: a pair has one number of the first half and one of the second half.

Write rotary(x, positions, base), which returns y and a cache, and rotary_backward(dy, cache), which returns dx.

Positions are integers and have no gradient. You choose the contents of the cache.

    python -m numpy_attention grade tutorials/exercises/rotary.py            check your function
    python -m numpy_attention grade tutorials/exercises/rotary.py --hint 1   the first of three hints
"""

import numpy as np


def rotary(x, positions, base=10000.0):
    """x (..., T, d_k) with even d_k, positions (T,) -> y, with the shape of x, and a cache."""
    raise NotImplementedError


def rotary_backward(dy, cache):
    """dy, with the shape of y -> dx, with the shape of x."""
    raise NotImplementedError
