"""Exercise: dropout from scratch

    y = x * kept / (1 - rate)        in training: kept is False for a random share `rate` of the elements
    y = x                            after training: there is no generator

This file draws the mask. Write dropout(x, rate, rng), which returns y and a cache, and dropout_backward(dy, cache).

The cache must hold the mask of this call: dropout may be called again before the backward of this call runs.

    python -m numpy_attention grade tutorials/exercises/dropout.py            check your function
    python -m numpy_attention grade tutorials/exercises/dropout.py --hint 1   three hints, one at a time
"""

import numpy as np


def dropout(x, rate, rng):
    """x of any shape, rate in [0, 1), rng a np.random.Generator or None -> y of the same shape, cache."""
    if rng is not None:
        kept = rng.random(x.shape, dtype=np.float32) >= rate  # do not change this line: the grader draws this mask too
    raise NotImplementedError


def dropout_backward(dy, cache):
    """dy as y -> dx as x."""
    raise NotImplementedError
