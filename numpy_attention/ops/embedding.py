"""Chapter 2. Embedding: from ids to vectors

A table holds one vector per token of the vocabulary, and a sentence becomes a matrix by looking its ids up:

    y_n = table[ids_n]        y_nj = sum_v [ids_n = v] table_vj

Written with the indicator [ids_n = v], the look-up is the linear map of chapter 1 with a one-hot x, and so
is its gradient:

    dL/dtable_vj = sum_n [ids_n = v] dy_nj

Row v of the table receives the sum of dy over all places where token v stood. The sum is the whole point: a
token that stands three times was used three times. `dtable[ids] = dy` keeps only the last of them, and so does
`dtable[ids] += dy`, since NumPy buffers the right-hand side. The plain and right form is

    np.add.at(dtable, ids, dy)

which walks token by token. The same sum, fast: sort the ids so that equal tokens are neighbours, then let
`np.add.reduceat` add up each run of neighbours at once. (A GPU adds all tokens at once, and there the plain form is
the fast one.) The ids themselves are integers and have no gradient.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import on_host, require_cotangent, require_float, require_integers, shape_error


class EmbeddingCache(NamedTuple):
    """Which rows were read, and the table's size and kind, to make its gradient."""

    ids: np.ndarray  # (...), integers
    table: np.ndarray  # (V, d_model)


def embedding(ids: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, EmbeddingCache]:
    """Look up one row of the table for every id.

    Formula: y_n = table[ids_n]

    Shapes: ids (...) of integers in [0, V), table (V, d_model) -> y (..., d_model)

    Raises: TypeError for ids that are not integers; ValueError for an id outside the table or a table that is not 2-D.
    Ids on the host are checked here and then follow the table; ids already on a GPU must have been checked before.

    Source: Bengio et al., A Neural Probabilistic Language Model, JMLR 3 (2003), section 2.

    >>> y, cache = embedding(np.array([2, 0, 2]), np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]))
    >>> embedding_backward(np.ones_like(y), cache)  # token 2 stood twice, token 1 never
    array([[1., 1.],
           [0., 0.],
           [2., 2.]])
    """
    require_float("embedding", table=table)
    require_integers("embedding", "ids", ids)
    if table.ndim != 2:
        raise shape_error("embedding", "table", "(V, d_model)", table.shape)
    # A look at the values of ids on a GPU would wait for the GPU, so only host ids are looked at.
    if on_host(ids) and ids.size and not (ids.min() >= 0 and ids.max() < table.shape[0]):
        wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
        expected = f"integers in [0, {table.shape[0]}), the rows of table {table.shape}"
        fix = "is padding marked by a negative id?" if wrong < 0 else "was the table made for a smaller vocabulary?"
        raise shape_error("embedding", "ids", expected, wrong, fix)

    ids = np.asarray(ids, like=table)  # moved, if the table lives on a GPU
    return table[ids], EmbeddingCache(ids, table)


def embedding_backward(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """Gradient of `embedding` for its table: dtable_v = sum of dy_n over the places n with id v.

    Shapes: dy (..., d_model) -> dtable (V, d_model)
    """
    dtable = np.zeros_like(cache.table)
    embedding_backward_into(dy, cache, dtable)
    return dtable


def embedding_backward_into(dy: np.ndarray, cache: EmbeddingCache, dtable: np.ndarray) -> None:
    """Add the gradient to `dtable`, for a table that has another use with a gradient of its own.

    Shapes: dy (..., d_model), dtable (V, d_model), changed in place
    """
    ids, table = cache
    require_cotangent("embedding_backward", "dy", dy, (*ids.shape, table.shape[1]), table.dtype)
    if ids.size == 0:
        return

    # y = table[ids]
    if not on_host(ids):
        np.add.at(dtable, ids, dy)
        return
    flat_ids = ids.reshape(-1)  # (N,)
    order = np.argsort(flat_ids, kind="stable")  # equal ids become neighbours, in the order of the text
    sorted_ids = flat_ids[order]
    first_of_run = np.flatnonzero(np.diff(sorted_ids, prepend=sorted_ids[:1] - 1))  # where a new id begins
    sorted_dy = dy.reshape(-1, table.shape[1])[order]  # (N, d_model)
    run_sums = np.add.reduceat(sorted_dy, first_of_run, axis=0)  # (number of different ids, d_model)
    dtable[sorted_ids[first_of_run]] += run_sums  # now each id occurs once, so the plain sum is safe
