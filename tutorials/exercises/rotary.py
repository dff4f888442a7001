"""Exercise: rotary positions from nothing

    y_1 = x_1 cos(a) - x_2 sin(a)        a = t f_i, t the position
    y_2 = x_2 cos(a) + x_1 sin(a)        f_i = base^(-2i / d_k), i = 0 ... d_k / 2 - 1

x_1 and x_2 are the columns i and i + d_k / 2: the first half of the vector is turned with the second.

Write: rotary(x, positions, base), which returns y and a cache, and rotary_backward(dy, cache), which returns dx.

Positions are integers and have no gradient. What goes into the cache is your choice.

    python -m numpy_attention grade tutorials/exercises/rotary.py            what is right already
    python -m numpy_attention grade tutorials/exercises/rotary.py --hint 1   three hints, one at a time
"""

import numpy as np


def rotary(x, positions, base=10000.0):
    """x (..., T, d_k) with even d_k, positions (T,) -> y as x, cache."""
    raise NotImplementedError


def rotary_backward(dy, cache):
    """dy as y -> dx as x."""
    raise NotImplementedError
