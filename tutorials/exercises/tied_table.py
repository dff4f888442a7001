"""Exercise: the two gradients of a tied table

    x      = table[ids]          ids (...) of integers in [0, V), table (V, d)
    h      = x w                 the layers in between, here a single matrix w (d, d)
    logits = h table^T           (..., V): the table is used again

This file has the forward. Write tied_table_backward(dlogits, cache), which returns dtable, dw.

A token may occur several times in ids, and every row of the table is used at every place of the output.

    python -m numpy_attention grade tutorials/exercises/tied_table.py            check your function
    python -m numpy_attention grade tutorials/exercises/tied_table.py --hint 1   three hints, one at a time
"""

import numpy as np


def tied_table(ids, table, w):
    """Ids (...), table (V, d), w (d, d) -> logits (..., V)."""
    x = table[ids]  # (..., d)
    h = x @ w  # (..., d)
    return h @ table.T, (ids, table, w, x, h)


def tied_table_backward(dlogits, cache):
    """dlogits (..., V) -> dtable (V, d), dw (d, d)."""
    ids, table, w, x, h = cache
    raise NotImplementedError
