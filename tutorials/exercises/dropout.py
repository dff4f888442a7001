"""Exercise: dropout from nothing

    y = x * kept / (1 - rate)        in training: kept is False for a share `rate` of the numbers, at random
    y = x                            in use, when there is no generator

Given: the draw. Write: dropout(x, rate, rng), which returns y and a cache, and dropout_backward(dy, cache).

The cache must hold what this call drew: the layer may be used again before its backward runs.

    python -m numpy_attention grade tutorials/exercises/dropout.py            what is right already
    python -m numpy_attention grade tutorials/exercises/dropout.py --hint 1   three hints, one at a time
"""

import numpy as np


def dropout(x, rate, rng):
    """x of any shape, rate in [0, 1), rng a np.random.Generator or None -> y of the same shape, cache."""
    if rng is not None:
        kept = rng.random(x.shape, dtype=np.float32) >= rate  # draw once, and just so: the grader draws the same
    raise NotImplementedError


def dropout_backward(dy, cache):
    """dy as y -> dx as x."""
    raise NotImplementedError
