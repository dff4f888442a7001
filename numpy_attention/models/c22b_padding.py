"""Chapter 22, appendix. Batches of sequences: their checks, and their padding

A batch is a rectangle, but sentences have unequal lengths. Padding fills the rows of short sentences and must not
change the results:

    ids        7 3 9 4        lengths  4        visible    1 1 1 1
               5 2 0 0                 2                   1 1 0 0
               0 0 0 0                 0                   0 0 0 0

Padding is known from the lengths, or from a special id, the pad_token (here 0). The mask of Chapter 4 hides it.
"""

import numpy as np

from numpy_attention.errors import require_array, shape_error
from numpy_attention.ops.c04_masks import padding_mask


def check_batch(
    model: str, argument: str, ids: np.ndarray, context_length: int, T_past: int = 0, d_input: int | None = None
) -> None:
    """Refuse an argument that is not a batch of sequences, or sequences longer than the context.

    Raises: ValueError for the shape; TypeError if `ids` is not an array.
    """
    require_array(model, argument, ids)
    axes = "(B, T)" if d_input is None else f"(B, T, {d_input})"
    if ids.ndim != 2 + (d_input is not None) or ids.shape[1] == 0:
        fix = f"for one sequence, pass {argument}[None]"
        raise shape_error(model, argument, f"{axes} with T at least 1", ids.shape, fix)
    if T_past + ids.shape[1] > context_length:
        expected = f"{axes} with T at most the context_length {context_length}"
        fix = "cut the sequences into blocks, or build the model with a longer context"
        raise shape_error(model, argument, expected, ids.shape, fix)


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
