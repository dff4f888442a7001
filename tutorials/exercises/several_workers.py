"""Exercise: one gradient from several workers

Worker w has its own part of the batch. In this part, the loss uses n_w positions, the counted positions (not the
padding). The worker computes

    loss_w = (1 / n_w) times the sum of the losses at its counted positions

and sends you two things: the gradient of loss_w, and n_w.

Write joined_gradient(grads, counts), which returns the gradient of the loss of the whole batch,

    loss = (1 / n) times the sum of the losses at all counted positions        n = n_1 + n_2 + ...

If the part of a worker contains only padding, this worker has n_w = 0, and its gradient is zero. If n = 0, return
zeros.

    python -m numpy_attention grade tutorials/exercises/several_workers.py            check your function
    python -m numpy_attention grade tutorials/exercises/several_workers.py --hint 1   the first of three hints
"""

import numpy as np


def joined_gradient(grads, counts):
    """Two lists: one dict of arrays and one int for each worker -> a dict of arrays with the same names."""
    raise NotImplementedError
