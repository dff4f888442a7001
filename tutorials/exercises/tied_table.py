"""Exercise: the two gradients of a tied table

A tied table is used twice, at the input and at the output:

    x      = table[ids]          the first use of table (V, d); ids (...) are integers from 0 to V - 1
    h      = x w                 in a real model there are many layers here; this model has one matrix w (d, d)
    logits = h table^T           the second use of table; logits (..., V)

This file has the forward function. Write tied_table_backward(dlogits, cache), which returns dtable, dw.

A token can occur several times in ids. At the output, each place has one logit for every row of the table.

    python -m numpy_attention grade tutorials/exercises/tied_table.py            check your function
    python -m numpy_attention grade tutorials/exercises/tied_table.py --hint 1   the first of three hints
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
