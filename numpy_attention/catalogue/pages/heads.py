"""Splitting an array into heads, and joining heads (Chapter 7), for any leading axes."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, op_entry
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.heads import HeadsCache

CHAPTER = 7


def _heads(sizes: Sizes) -> dict[str, Any]:
    return {"num_heads": sizes["H"]}


ENTRIES = (
    op_entry("split_heads", "x: B T H*d_k", options=_heads, at_least={"H": 2}, wrong="x-1"),
    op_entry("split_heads", "x: ... T H*d_k", "any leading axes", options=_heads),
    op_entry("concat_heads", "x: B H T d_v"),
    op_entry("concat_heads", "x: H T d_v", "no leading axes", wrong="x[row]"),
    op_entry("concat_heads", "x: ... H T d_v", "any leading axes"),
)


def plain_concat_heads(x: Array) -> Array:
    """Concatenates all heads along the last axis."""
    return np.concatenate([x[..., h, :, :] for h in range(x.shape[-3])], axis=-1)


def plain_split_heads(x: Array, num_heads: int) -> Array:
    """Head h gets the columns from h d_k to (h + 1) d_k."""
    return np.stack(np.split(x, num_heads, axis=-1), axis=-3)


PLAIN = {"concat_heads": plain_concat_heads, "split_heads": plain_split_heads}


@op_of("concat_heads", lambda dy, shape: dy.reshape(shape), diagnosis="the forward gives")
def concat_by_reshape(x: Array) -> Any:
    """(B, H, T, d) is reshaped to (B, T, H d) without swapping H and T, so positions and heads are mixed.

    Hides: the shapes agree, and the backward matches the forward, so no gradient check can find it.
    """
    *lead, H, T, d = x.shape
    return x.reshape(*lead, T, H * d), x.shape


@backward_of("concat_heads", diagnosis="a reshape without its transpose")
def concat_backward_by_reshape(dy: Array, cache: HeadsCache) -> Array:
    """The backward splits the heads by a reshape without swapping H and T.

    Hides: the shapes agree; right for a single head or a single position.
    """
    return dy.reshape(cache.shape)


@backward_of("split_heads", diagnosis="a reshape without its transpose")
def split_backward_by_reshape(dy: Array, cache: HeadsCache) -> Array:
    """The backward joins the heads by a reshape without swapping H and T.

    Hides: the shapes agree; right for a single head or a single position.
    """
    *lead, H, T, d_k = cache.shape
    return dy.reshape(*lead, T, H * d_k)


@backward_of("split_heads", diagnosis="a reshape without its transpose")
def batch_mixed(dy: Array, cache: HeadsCache) -> Array:
    """The backward moves time before the batch and then reshapes, so each sequence gets rows of other sequences.

    Hides: the shapes agree and no number is lost; right for a batch of one.
    """
    *lead, H, T, d_k = cache.shape
    return np.moveaxis(dy, -2, 0).reshape(*lead, T, H * d_k)


EXERCISES = (
    Exercise("heads", 6, (
        Try("split_heads", "x: ... T H*d_k", "", _heads, at_least={"H": 2}), Try("concat_heads", "x: ... H T d_v"),
    )),
)
