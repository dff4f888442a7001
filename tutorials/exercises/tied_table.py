"""Exercise: the two gradients of a tied table

    x      = table[ids]          ids (...) of integers in [0, V), table (V, d)
    h      = x w                 all that stands between, here a single matrix w (d, d)
    logits = h table^T           (..., V): the same table once more

Given: the forward. Write: tied_table_backward(dlogits, cache), which returns dtable, dw.

A token may stand in several places; and every row of the table takes part in every logit.

    python -m numpy_attention grade tutorials/exercises/tied_table.py            what is right already
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
