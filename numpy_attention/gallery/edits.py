"""Wrong edits of what flows inside a model (Chapter 38)."""

from typing import Any

import numpy as np

from numpy_attention.gallery.registry import backward_of, op_of
from numpy_attention.inside.edits import EditCache, edit, edit_backward
from numpy_attention.ops.sums import sum_to_shape


@backward_of("edit")
def gradient_through_what_was_thrown_away(dy: np.ndarray, cache: EditCache) -> Any:
    """dx = dy: what was thrown away gets a gradient, though moving it moves nothing.

    Hides: right as long as all is kept; and the numbers that are kept have the right gradient.
    """
    return dy.copy(), edit_backward(dy, cache)[1]


@backward_of("edit")
def gradient_of_what_was_thrown_away_alone(dy: np.ndarray, cache: EditCache) -> Any:
    """The mask is upside down on the way back: what was thrown away gets the gradient, and what was kept none.

    Hides: shapes and sizes are right; where a head is masked, some gradient goes to every head's weights.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx if cache.keep is None else dy - dx, dadd


@backward_of("edit")
def added_only_where_kept(dy: np.ndarray, cache: EditCache) -> Any:
    """The gradient of what was added is masked by keep, but add counts everywhere, also where x was thrown away.

    Hides: right as long as all is kept, as in steering; a patch, which is added where x was thrown away, gets none.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx, None if dadd is None or cache.add_shape is None else sum_to_shape(dx, cache.add_shape)


@backward_of("edit")
def added_vector_not_summed(dy: np.ndarray, cache: EditCache) -> Any:
    """A vector that is added at every place acts at every place; only the gradient of the first is kept.

    Hides: the shape is right, and so are the numbers for an add of the shape of x.
    """
    dx, dadd = edit_backward(dy, cache)
    if dadd is None or cache.add_shape is None:
        return dx, dadd
    extra = dy.ndim - len(cache.add_shape)
    first = dy[(0,) * extra]
    return dx, first[tuple(slice(0, size) for size in cache.add_shape)].copy()


@backward_of("edit")
def added_vector_averaged(dy: np.ndarray, cache: EditCache) -> Any:
    """The gradient of an add that was repeated is a mean over the places, where their effects add up.

    Hides: the direction is right, and so are the numbers for an add of the shape of x.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx, dadd if dadd is None else dadd * np.asarray(dadd.size / dy.size, dy.dtype)


@op_of("edit", added_only_where_kept)
def added_before_the_mask(x: np.ndarray, keep: np.ndarray | None = None, add: np.ndarray | None = None) -> Any:
    """y = keep * (x + add): what is put in the place of something thrown away is thrown away with it.

    Hides: right as long as all is kept, and the backward fits the forward, so no gradient check can tell.
    """
    _, cache = edit(x, keep, add)
    y = x if add is None else x + add
    return np.array(y if keep is None else np.where(keep, y, 0.0)), cache
