"""Exercise: the gradient of an embedding

    y_n = table[ids_n]        ids (...) of integers in [0, V), table (V, d_model) -> y (..., d_model)

This file has the forward. Write embedding_backward(dy, cache), which returns dtable.

Ids are integers and have no gradient. A token may occur several times in a sentence.

    python -m numpy_attention grade tutorials/exercises/embedding.py            check your function
    python -m numpy_attention grade tutorials/exercises/embedding.py --hint 1   three hints, one at a time
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
