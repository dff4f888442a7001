"""Chapter 22, appendix. Batches of sequences: which are refused, and which of their tokens only fill the batch

A batch is a rectangle, sentences are not. Short ones are filled up, and what fills them must not count:

    ids        7 3 9 4        lengths  4        visible    1 1 1 1
               5 2 0 0                 2                   1 1 0 0
               0 0 0 0                 0                   0 0 0 0

Either the lengths say so, or an id of its own, the pad_token (here 0). The mask of Chapter 4 hides the rest.
"""

import numpy as np

from numpy_attention.errors import require_array, shape_error
from numpy_attention.ops.masks import padding_mask


def check_batch(
    model: str, argument: str, ids: np.ndarray, context_length: int, T_past: int = 0, d_input: int | None = None
) -> None:
    """Refuse what is not a batch of sequences, or is longer than the model's positions reach.

    Raises: ValueError for such shapes; TypeError for what is no array.
    """
    require_array(model, argument, ids)
    axes = "(B, T)" if d_input is None else f"(B, T, {d_input})"
    if ids.ndim != 2 + (d_input is not None) or ids.shape[1] == 0:
        fix = f"one sequence goes in as {argument}[None]"
        raise shape_error(model, argument, f"{axes} with T at least 1", ids.shape, fix)
    if T_past + ids.shape[1] > context_length:
        expected = f"{axes} with T at most the context_length {context_length}"
        fix = "cut the sequences into blocks, or build the model with a longer context"
        raise shape_error(model, argument, expected, ids.shape, fix)


def visible_tokens(
    ids: np.ndarray, lengths: np.ndarray | None, pad_token: int | None, like: np.ndarray, argument: str = "lengths"
) -> np.ndarray | None:
    """Which tokens are real: the first `lengths`, which errors call `argument`, else those that are not the pad_token;
    None where all are.

    Shapes: ids (B, T), without a pad_token also (B, T, d_input), lengths (B,) -> (B, T) of bool, where `like` is.

    Raises: ValueError for lengths that are not one a sequence, or beyond T; TypeError for those that are no integers.
    """
    if lengths is not None:
        if np.shape(lengths) != ids.shape[:1]:
            raise shape_error("padding", argument, f"(B,) = {ids.shape[:1]}, one a sequence", np.shape(lengths))
        return np.asarray(padding_mask(lengths, ids.shape[1])[:, 0, 0], like=like)
    return None if pad_token is None else np.asarray(ids != pad_token, like=like)


def share_of_the_visible(x: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """What each token gives to the mean: 1/n for n visible tokens; nothing anywhere if there is none."""
    if visible is None:
        return np.full_like(x[..., 0], 1.0 / x.shape[1])
    share = np.zeros_like(x[..., 0])  # (B, T)
    share += visible
    share /= np.maximum(visible.sum(axis=1, keepdims=True), 1).astype(x.dtype)
    return share
