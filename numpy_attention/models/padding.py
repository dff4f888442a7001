"""Chapter 21, appendix. Which tokens are real, and which only fill a batch of sequences of unequal length"""

import numpy as np

from numpy_attention.ops.masks import padding_mask


def visible_tokens(
    ids: np.ndarray, lengths: np.ndarray | None, pad_token: int | None, like: np.ndarray
) -> np.ndarray | None:
    """Which tokens are real: the first `lengths`, else those that are not the pad_token; None where all are.

    Shapes: ids (B, T) or (B, T, d_input), lengths (B,) -> (B, T) of bool, on the device of `like`.
    """
    if lengths is not None:
        return np.asarray(padding_mask(lengths, ids.shape[1])[:, 0, 0], like=like)
    return None if pad_token is None else np.asarray(ids != pad_token, like=like)
