"""Chapter 38. Edits: what if it had been something else?

To learn what a part of a trained model is for, change what it says, and see what becomes of the end. Whatever flows
between two lines of a forward, a head's answer or a whole residual stream, is an array x. An edit keeps some of its
numbers, puts zeros in the place of the others, and adds something:

    y = keep * x + add                  keep is 0 or 1, number by number

That is enough for all that is done to the inside of a model:

    keep                  add
    0 at the head         nothing               ablation to zero: the head says nothing
    0 at the head         its mean              ablation to its mean: it says what it always says
    0 at the head         from another run      patching: it says what it said elsewhere
    1                     a vector              steering: it says what it said, and something more
    1                     nothing               nothing is changed; but a gradient can be read here

An edit is linear in both of its arrays. What was thrown away gets no gradient, and what was added gets all of it:

    dx = keep * dy                      dadd = dy, summed over whatever add was repeated along

So dy itself is the slope of the loss for what stands at this place, whether anything was added or not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import broadcasts_to, require_bools, require_cotangent, require_float, shape_error
from numpy_attention.ops.sums import sum_to_shape


class Edit(NamedTuple):
    """What `edit` does to an array: which numbers it keeps, and what it adds. `Edit()` changes nothing."""

    keep: np.ndarray | None = None  # bool, broadcastable to x; None: all
    add: np.ndarray | None = None  # broadcastable to x; None: nothing


class EditCache(NamedTuple):
    """What backward needs; None for what was not there."""

    keep: np.ndarray | None
    add_shape: tuple[int, ...] | None
    shape: tuple[int, ...]
    dtype: np.dtype


def edit(
    x: np.ndarray, keep: np.ndarray | None = None, add: np.ndarray | None = None
) -> tuple[np.ndarray, EditCache]:
    """Keep some numbers of x, put zeros in the place of the others, and add something.

    Formula: y = keep * x + add

    Shapes: x of any shape, keep and add broadcastable to it -> y as x

    Raises: TypeError when x or add is not an array of floats, or keep not one of bool; ValueError for shapes that do
    not broadcast to that of x.

    Source: patching: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020),
    section 3; steering: Turner et al., Activation Addition (2023).

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> edit(x, keep=np.array([[True], [False]]), add=np.array([0.5, 0.0]))[0].tolist()
    [[1.5, 2.0], [0.5, 0.0]]
    """
    _check_edit(x, keep, add)
    y = x if keep is None else np.where(keep, x, 0.0)  # a NaN that is thrown away is gone
    y = y.copy() if add is None else y + add
    return y, EditCache(keep, None if add is None else add.shape, x.shape, x.dtype)


def edit_backward(dy: np.ndarray, cache: EditCache) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of `edit`: dx where x was kept, and dadd (None if nothing was added).

    Shapes: dy as y -> dx as x, dadd as add
    """
    require_cotangent("edit_backward", "dy", dy, cache.shape, cache.dtype)
    # y = keep * x + add
    dx = dy.copy() if cache.keep is None else np.where(cache.keep, dy, 0.0)
    return dx, None if cache.add_shape is None else sum_to_shape(dy, cache.add_shape)


def _check_edit(x: np.ndarray, keep: np.ndarray | None, add: np.ndarray | None) -> None:
    require_float("edit", optional="add", x=x, add=add)
    if keep is not None:
        require_bools("edit", "keep", keep, "of bool, True = stays", "compare: keep > 0")
    for name, array in (("keep", keep), ("add", add)):
        if array is not None and not broadcasts_to(array.shape, x.shape):
            raise shape_error("edit", name, f"broadcastable to x {x.shape}", array.shape)
