"""Exercise: the gradients of an edit

What does a part of a model do? To find out, replace its output x by y, and look at the result of the model. This is y:

    y = keep * x + add

keep is True or False for each element. Elements with False are replaced by zero (ablation). add may be the output from
another run (patching). It may also be one vector for all positions (steering); NumPy repeats this vector.

This file has the forward. Write edit_backward(dy, cache), which returns dx and dadd. If add is None, dadd is None.

    python -m numpy_attention grade tutorials/exercises/ablation.py            check your function
    python -m numpy_attention grade tutorials/exercises/ablation.py --hint 1   the first of three hints
"""

import numpy as np


def edit(x, keep=None, add=None):
    """x of any shape -> y of the same shape, and the cache.

    keep (bool) is None or an array; add is None or an array. NumPy can repeat these arrays to the shape of x.
    """
    y = x if keep is None else np.where(keep, x, 0.0)
    y = y.copy() if add is None else y + add
    return y, (keep, None if add is None else add.shape)


def edit_backward(dy, cache):
    """dy of the shape of y -> dx of the shape of x, dadd of the shape of add (or None)."""
    keep, add_shape = cache
    raise NotImplementedError
