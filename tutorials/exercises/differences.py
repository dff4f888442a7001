"""Exercise: a gradient by numerical differences

    dx_i = (L(x + h e_i) - L(x - h e_i)) / (2 h)        L = sum(dy * f(x)), e_i is 1 at place i and 0 elsewhere

This file has the function f. Each element of y depends on all elements in the same row of x.
Write differences(x, dy, h), which returns dx.

Your function must also work for more complicated functions f. So only call f, and do not use its formula.
The caller still needs x, so do not change x.

    python -m numpy_attention grade tutorials/exercises/differences.py            check your function
    python -m numpy_attention grade tutorials/exercises/differences.py --hint 1   the first of three hints
"""

import numpy as np


def f(x):
    """x (N, d) -> y (N, d)."""
    return x * np.tanh(x.sum(axis=-1, keepdims=True))


def differences(x, dy, h):
    """x (N, d), dy (N, d), a step h -> dx (N, d)."""
    raise NotImplementedError
