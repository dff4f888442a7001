"""Chapter 2. Embedding: from ids to vectors

A table holds one vector for each token of the vocabulary. Looking up the ids of a sentence gives a matrix:

    y_n = table[ids_n]        y_nj = sum_v [ids_n = v] table_vj

The indicator [ids_n = v] is a one-hot x. So the look-up is the linear map of Chapter 1, and the gradient of the table
is dw of that chapter:

    dL/dtable_vj = sum_n [ids_n = v] dy_nj

Row v of the table receives the sum of dy over all positions with token v. The sum is important: a token that occurs
three times was used three times. `dtable[ids] = dy` keeps only the last of the three, and so does `dtable[ids] += dy`,
because NumPy reads all the rows before it writes any. The simple and correct form is

    np.add.at(dtable, ids, dy)

which adds token by token, to the numbers that are already in dtable. The ids are integers and have no gradient.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent
from numpy_attention.shapes import check_shapes

SHAPES = "table: V d_model, ids: int<V> ..."

FIXES = {"V": "the table has one row per id; is it for another vocabulary, or is padding marked by -1?"}


class EmbeddingCache(NamedTuple):
    """The rows that were read, and the table, for the shape and dtype of its gradient."""

    ids: np.ndarray  # (...), integers
    table: np.ndarray  # (V, d_model)


def embedding(ids: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, EmbeddingCache]:
    """Look up one row of the table for every id.

    Formula: y_n = table[ids_n]

    Shapes: ids (...) of integers in [0, V), table (V, d_model) -> y (..., d_model)

    Raises: TypeError for ids that are not integers; ValueError for an id outside the table or a table that is not 2-D.
    Ids on the host are checked here and copied to the table's device. Ids on a GPU are not checked: check them before.

    Source: Bengio et al., A Neural Probabilistic Language Model, JMLR 3 (2003), section 2.

    >>> y, cache = embedding(np.array([2, 0, 2]), np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]))
    >>> embedding_backward(np.ones_like(y), cache)  # token 2 occurs twice, token 1 never
    array([[1., 1.],
           [0., 0.],
           [2., 2.]])
    """
    check_shapes("embedding", SHAPES, fixes=FIXES, ids=ids, table=table)
    ids = np.asarray(ids, like=table)  # copied, if the table is on a GPU
    return table[ids], EmbeddingCache(ids, table)


def embedding_backward(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """Gradient of `embedding` for its table: dtable_v = sum of dy_n over the positions n with id v.

    Shapes: dy (..., d_model) -> dtable (V, d_model)
    """
    ids, table = cache
    require_cotangent("embedding_backward", "dy", dy, (*ids.shape, table.shape[1]), table.dtype)
    # y = table[ids]
    dtable = np.zeros_like(table)
    np.add.at(dtable, ids, dy)  # dtable[ids] += dy, but repeated ids add up
    return dtable
