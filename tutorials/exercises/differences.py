"""Exercise: a gradient by differences

    dx_i = (L(x + h e_i) - L(x - h e_i)) / (2 h)        L = sum(dy * f(x)), e_i is 1 at place i and 0 elsewhere

Given: the function f, whose rows mix. Write: differences(x, dy, h), which returns dx.

Later functions will be large, so use f as it is and do not look into it. x belongs to the caller: leave it as it was.

    python -m numpy_attention grade tutorials/exercises/differences.py            what is right already
    python -m numpy_attention grade tutorials/exercises/differences.py --hint 1   three hints, one at a time
"""

import numpy as np


def f(x):
    """x (N, d) -> y (N, d)."""
    return x * np.tanh(x.sum(axis=-1, keepdims=True))


def differences(x, dy, h):
    """x (N, d), dy (N, d), a step h -> dx (N, d)."""
    raise NotImplementedError
