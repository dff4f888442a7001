"""Exercise: one gradient from several workers

Worker w has its own part of the batch. n_w of its places count in the loss (padding does not count). It computes

    loss_w = (1 / n_w) sum of the losses at its places

and sends two things: the gradient of loss_w, and n_w.

Write joined_gradient(grads, counts), which returns the gradient of the loss of the whole batch,

    loss = (1 / n) sum of the losses at all places            n = n_1 + n_2 + ...

A worker whose part is only padding has n_w = 0 and sends zeros.

    python -m numpy_attention grade tutorials/exercises/several_workers.py            check your function
    python -m numpy_attention grade tutorials/exercises/several_workers.py --hint 1   three hints, one at a time
"""

import numpy as np


def joined_gradient(grads, counts):
    """A list of dicts of arrays and a list of ints, one for each worker -> a dict of arrays with the same names."""
    raise NotImplementedError
