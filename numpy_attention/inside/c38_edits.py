"""Chapter 38. Edits: change an array inside the model

To learn what a part of a trained model is for, change the output of this part, and see how the model's result changes.
An edit changes one array x in the middle of a forward, for example a head's output or the whole residual stream. The
edit keeps some elements of x, replaces the others by zeros, and adds an array:

    y = keep * x + add                  keep is 0 or 1 for each element

This is enough for all common interventions:

    keep                  add
    0 at the head         nothing               ablation to zero: the head's output is zero
    0 at the head         mean of its output    ablation to the mean: the head's output is constant
    0 at the head         from another run      patching: the head's output comes from the other run
    1                     a vector              steering: the vector is added to the output
    1                     nothing               no change; the array and its gradient are recorded

An edit is linear in x and in add. The gradient of removed elements of x is zero. The gradient of add does not depend on
keep:

    dx = keep * dy                      dadd = dy, summed over the axes along which add was repeated

Here dy is the gradient of the loss with respect to y, the array after the edit.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import broadcasts_to, require_bools, require_cotangent, require_float, shape_error
from numpy_attention.ops.c01a_sums import sum_to_shape


class Edit(NamedTuple):
    """The arguments of `edit`: the elements of x to keep, and the array to add. `Edit()` changes nothing."""

    keep: np.ndarray | None = None  # bool, broadcastable to x; None: all
    add: np.ndarray | None = None  # broadcastable to x; None: nothing


class EditCache(NamedTuple):
    """What backward needs; None for an argument that was not given."""

    keep: np.ndarray | None
    add_shape: tuple[int, ...] | None
    shape: tuple[int, ...]
    dtype: np.dtype


def edit(x: np.ndarray, keep: np.ndarray | None = None, add: np.ndarray | None = None) -> tuple[np.ndarray, EditCache]:
    """Keep some elements of x, replace the others by zeros, and add an array.

    Formula: y = keep * x + add

    Shapes: x of any shape, keep and add broadcastable to x -> y as x

    Raises: TypeError if x or add is not an array of floats, or keep is not an array of bool; ValueError if a shape does
    not broadcast to the shape of x.

    Source: patching: Vig et al., Investigating Gender Bias in Language Models Using Causal Mediation Analysis (2020),
    section 3; steering: Turner et al., Activation Addition (2023).

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> edit(x, keep=np.array([[True], [False]]), add=np.array([0.5, 0.0]))[0].tolist()
    [[1.5, 2.0], [0.5, 0.0]]
    """
    _check_edit(x, keep, add)
    y = x if keep is None else np.where(keep, x, 0.0)  # a NaN that is not kept becomes 0
    y = y.copy() if add is None else y + add
    return y, EditCache(keep, None if add is None else add.shape, x.shape, x.dtype)


def edit_backward(dy: np.ndarray, cache: EditCache) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of `edit`: dx, zero where x was not kept, and dadd, None if nothing was added.

    Shapes: dy as y -> dx as x, dadd as add
    """
    require_cotangent("edit_backward", "dy", dy, cache.shape, cache.dtype)
    # y = keep * x + add
    dx = dy.copy() if cache.keep is None else np.where(cache.keep, dy, 0.0)
    return dx, None if cache.add_shape is None else sum_to_shape(dy, cache.add_shape)


def _check_edit(x: np.ndarray, keep: np.ndarray | None, add: np.ndarray | None) -> None:
    require_float("edit", optional="add", x=x, add=add)
    if keep is not None:
        require_bools("edit", "keep", keep, "of bool, True = keep", "compare: keep > 0")
    for name, array in (("keep", keep), ("add", add)):
        if array is not None and not broadcasts_to(array.shape, x.shape):
            raise shape_error("edit", name, f"broadcastable to x {x.shape}", array.shape)
