"""Exercise: the gradients of an edit

To learn what a part of a model is for, change its output x, and look at the model's result:

    y = keep * x + add

keep is True or False for each element: elements with False are replaced by zero (ablation). add may be the array from
another run (patching), or one vector for all places (steering): NumPy repeats it.

This file has the forward. Write edit_backward(dy, cache), which returns dx, dadd; dadd is None if nothing was added.

    python -m numpy_attention grade tutorials/exercises/ablation.py            check your function
    python -m numpy_attention grade tutorials/exercises/ablation.py --hint 1   three hints, one at a time
"""

import numpy as np


def edit(x, keep=None, add=None):
    """x of any shape; keep (bool) and add, each broadcastable to x, or None -> y of the shape of x."""
    y = x if keep is None else np.where(keep, x, 0.0)
    y = y.copy() if add is None else y + add
    return y, (keep, None if add is None else add.shape)


def edit_backward(dy, cache):
    """dy of the shape of y -> dx of the shape of x, dadd of the shape of add."""
    keep, add_shape = cache
    raise NotImplementedError
