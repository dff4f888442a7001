"""Exercise: the gradient of GELU

    y = x P(x)        P(x) = (1 + tanh u) / 2        u = sqrt(2 / pi) (x + 0.044715 x^3)

This file has the forward. Write gelu_backward(dy, cache), which returns dx.

Each element of y depends on only one element of x, so the Jacobian is diagonal, and dx = dy * y'(x).

    python -m numpy_attention grade tutorials/exercises/gelu.py            check your function
    python -m numpy_attention grade tutorials/exercises/gelu.py --hint 1   the first of three hints
"""

import math

import numpy as np

C = math.sqrt(2 / math.pi)


def gelu(x):
    """x of any shape -> y of the same shape."""
    u = C * (x + 0.044715 * x * x * x)
    return x * (1 + np.tanh(u)) / 2, (x, u)


def gelu_backward(dy, cache):
    """dy (the shape of y) -> dx (the shape of x)."""
    x, u = cache
    raise NotImplementedError
