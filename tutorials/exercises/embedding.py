"""Exercise: the gradient of an embedding

    y_n = table[ids_n]        ids (...) of integers in [0, V), table (V, d_model) -> y (..., d_model)

Given: the forward. Write: embedding_backward(dy, cache), which returns dtable.

Ids are integers and have no gradient. A token may stand in several places of a sentence.

    python -m numpy_attention grade tutorials/exercises/embedding.py            what is right already
    python -m numpy_attention grade tutorials/exercises/embedding.py --hint 1   three hints, one at a time
"""

import numpy as np


def embedding(ids, table):
    """Ids (...) -> their rows of the table (..., d_model)."""
    return table[ids], (ids, table)


def embedding_backward(dy, cache):
    """dy (..., d_model) -> dtable (V, d_model)."""
    ids, table = cache
    dtable = np.zeros_like(table)
    raise NotImplementedError
