"""Exercise: the gradient of an embedding

    y_n = table[ids_n]        ids (...): integers from 0 to V - 1; table (V, d_model) -> y (..., d_model)

This file contains the forward. Write embedding_backward(dy, cache), which returns dtable.

Ids can have any shape, written (...). Then y has this shape and one more axis, of length d_model: (..., d_model).
Ids are integers, so they have no gradient. The same id can occur several times in ids.

    python -m numpy_attention grade tutorials/exercises/embedding.py            check your function
    python -m numpy_attention grade tutorials/exercises/embedding.py --hint 1   the first of three hints
"""

import numpy as np


def embedding(ids, table):
    """Ids (...) -> y (..., d_model): one row of the table for each id."""
    return table[ids], (ids, table)


def embedding_backward(dy, cache):
    """dy (..., d_model) -> dtable (V, d_model)."""
    ids, table = cache
    dtable = np.zeros_like(table)
    raise NotImplementedError
