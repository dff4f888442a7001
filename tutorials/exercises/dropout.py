"""Exercise: dropout from scratch

    y = x * kept / (1 - rate)        in training: each element of kept is False with probability rate
    y = x                            after training: rng is None

This file has one line of the forward. This line makes a random mask with the name kept. Write dropout(x, rate, rng),
which returns y and a cache, and dropout_backward(dy, cache), which returns dx.

The cache must contain the mask of this call, because a program can call dropout again before it calls the backward.

    python -m numpy_attention grade tutorials/exercises/dropout.py            check your function
    python -m numpy_attention grade tutorials/exercises/dropout.py --hint 1   the first of three hints
"""

import numpy as np


def dropout(x, rate, rng):
    """x of any shape, rate in [0, 1), rng a np.random.Generator or None -> y, with the shape of x, and a cache."""
    if rng is not None:
        kept = rng.random(x.shape, dtype=np.float32) >= rate  # do not change this line: the grader draws the same mask
    raise NotImplementedError


def dropout_backward(dy, cache):
    """dy, with the shape of y -> dx, with the shape of x."""
    raise NotImplementedError
