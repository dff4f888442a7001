"""Chapter 22, appendix. Padding: sequences of unequal lengths in one batch

A batch is a rectangle, but sentences have unequal lengths. Padding fills the rows of short sentences and must not
change the results:

    ids        7 3 9 4        lengths  4        visible    1 1 1 1
               5 2 0 0                 2                   1 1 0 0
               0 0 0 0                 0                   0 0 0 0

Padding is known from the lengths, or from a special id, the pad_token (here 0). The mask of Chapter 4 hides it.
"""

import numpy as np

from numpy_attention.errors import shape_error
from numpy_attention.ops.c04_masks import padding_mask


def visible_tokens(
    ids: np.ndarray, lengths: np.ndarray | None, pad_token: int | None, like: np.ndarray, argument: str = "lengths"
) -> np.ndarray | None:
    """True for real tokens, False for padding; None if all tokens are real.

    The first `lengths[b]` tokens of row b are real; without lengths, all ids except pad_token are real. `argument` is
    the name of the lengths in error messages.

    Shapes: ids (B, T), without a pad_token also (B, T, d_input), lengths (B,) -> bool (B, T), on the device of `like`.

    Raises: ValueError for lengths of another shape or above T; TypeError for lengths that are not integers.
    """
    if lengths is not None:
        if np.shape(lengths) != ids.shape[:1]:
            raise shape_error("padding", argument, f"(B,) = {ids.shape[:1]}, one per sequence", np.shape(lengths))
        return np.asarray(padding_mask(lengths, ids.shape[1])[:, 0, 0], like=like)
    return None if pad_token is None else np.asarray(ids != pad_token, like=like)


def mean_weights(x: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """The weights (B, T) of a masked mean: 1/n for each of n real tokens, 0 for padding; all 0 if n = 0."""
    if visible is None:
        return np.full_like(x[..., 0], 1.0 / x.shape[1])
    weights = np.zeros_like(x[..., 0])  # (B, T)
    weights += visible
    weights /= np.maximum(visible.sum(axis=1, keepdims=True), 1).astype(x.dtype)
    return weights


def first_weights(x: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """The weights (B, T) that take the first token: 1 for it, 0 for all others; all 0 if it is padding."""
    weights = np.zeros_like(x[..., 0])  # (B, T)
    weights[:, 0] = 1.0 if visible is None else visible[:, 0]
    return weights
