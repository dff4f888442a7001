"""Exercise: the gradients of an edit

To learn what a part of a model is for, change what it says, and look at the end:

    y = keep * x + add

keep is True or False, number by number: what is not kept is thrown away (ablation). What is added may be what stood
there in another run (patching), or one vector for all places (steering): NumPy repeats it.

Given: the forward. Write: edit_backward(dy, cache), which returns dx, dadd; dadd is None where nothing was added.

    python -m numpy_attention grade tutorials/exercises/ablation.py            what is right already, and what is not
    python -m numpy_attention grade tutorials/exercises/ablation.py --hint 1   three hints, one at a time
"""

import numpy as np


def edit(x, keep=None, add=None):
    """x of any shape; keep of bool and add, both broadcastable to it, or None -> y as x."""
    y = x if keep is None else np.where(keep, x, 0.0)
    y = y.copy() if add is None else y + add
    return y, (keep, None if add is None else add.shape)


def edit_backward(dy, cache):
    """dy as y -> dx as x, dadd as add."""
    keep, add_shape = cache
    raise NotImplementedError
