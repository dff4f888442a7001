"""Chapter 4. Masks: who may look at whom

Attention compares every query with every key, but three kinds of pairs must be hidden: a position and a later position
(otherwise the decoder would read the answer), a word and the padding that fills a batch of unequal sentences, and, in
long texts, two positions that are too far apart.

One contract holds in the whole book:

    a mask is boolean, broadcastable to (..., T_q, T_k), and True means "this query may look at this key";
    the score of a hidden pair becomes -inf, so its weight is exactly zero;
    a query that may look at nothing gets a row of zeros, and its gradient is zero; neither is NaN.

Masks combine with `&`: `causal_mask(T) & padding_mask(lengths, T)`.

Other code uses masks of ones and zeros with the opposite meaning (Keras lessons: 1 is hidden), or adds large negative
numbers. `mask_from_blocked` and `mask_from_additive` convert such masks; the book never guesses what a mask means.
If a mask is added, do not compute it as `-inf * mask`: for every visible pair this gives -inf * 0 = NaN.

A mask is a constant, so it has no backward. The backward of attention does not need the mask either: the weight of a
hidden pair is 0, and the softmax's backward multiplies by the weight.
"""

import numpy as np

from numpy_attention.errors import dtype_error, require_array, require_integers, require_size, shape_error, value_error


def causal_mask(T_q: int, T_k: int | None = None, *, like: np.ndarray | None = None) -> np.ndarray:
    """Let every position look at itself and at earlier positions (the look-ahead mask of a decoder).

    Formula: mask_ij = [j <= i + T_k - T_q]. The last query and the last key have the same position. So if T_q < T_k,
    the queries are the newest T_q positions: a model that writes a text has stored the keys of all older positions.

    Shapes: -> (T_q, T_k) of bool; T_k defaults to T_q. The mask is on the device of the array `like`.

    Raises: ValueError for a negative length.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.3.

    >>> causal_mask(2, 3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    T_q, T_k = query_and_key_lengths("causal_mask", T_q, T_k)
    i = np.arange(T_q, like=like)[:, None] + (T_k - T_q)  # (T_q, 1), the positions of the queries
    return np.arange(T_k, like=like) <= i  # (T_q, T_k)


def sliding_window_mask(
    T_q: int, window: int, T_k: int | None = None, ahead: int = 0, *, like: np.ndarray | None = None
) -> np.ndarray:
    """Let every position look at itself, at the `window - 1` positions before it, and at `ahead` positions after it.

    Formula: mask_ij = [i' - window < j <= i' + ahead] with i' = i + T_k - T_q

    Shapes: -> (T_q, T_k) of bool; T_k defaults to T_q. The mask is on the device of the array `like`.

    Units: `window` counts keys, including the key at the query's own position. `ahead` counts later keys. If `ahead`
    is 0, no position sees a later position, as a decoder needs.

    Raises: ValueError for a window below 1, or a negative length or `ahead`.

    Source: Beltagy, Peters, Cohan, Longformer (2020), section 3.1; causal as in Jiang et al., Mistral 7B (2023).

    >>> sliding_window_mask(4, window=2).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    T_q, T_k = query_and_key_lengths("sliding_window_mask", T_q, T_k)
    window = require_size("sliding_window_mask", "window", window, fix="with a window of 1 a position sees only itself")
    ahead = require_size("sliding_window_mask", "ahead", ahead, at_least=0)
    window, ahead = min(window, T_k), min(ahead, T_q)  # more than all keys is the same as all, and could overflow
    i = np.arange(T_q, like=like)[:, None] + (T_k - T_q)  # (T_q, 1), the positions of the queries
    j = np.arange(T_k, like=like)  # (T_k,)
    return (i - window < j) & (j <= i + ahead)  # (T_q, T_k)


def padding_mask(lengths: np.ndarray | list[int], T: int) -> np.ndarray:
    """Hide the padding at the end of each sequence of a batch.

    Formula: mask_bj = [j < lengths_b]. The mask hides columns (keys). Padding queries also get results, but these
    results are not used. Hiding the keys is enough to keep padding out of the real words.

    Shapes: lengths (B,) of integers in [0, T] -> (B, 1, 1, T) of bool, broadcastable to (B, H, T_q, T). The second
    axis is for several heads (Chapter 7). Without heads use `padding_mask(lengths, T)[:, 0]`, which is (B, 1, T).

    Raises: TypeError for lengths that are not integers; ValueError for lengths that are not 1-D or outside [0, T].

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.3 (illegal connections set to -inf).

    >>> padding_mask(np.array([1, 3]), T=3)[:, 0, 0].astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    lengths = _checked_lengths(lengths, T)
    return (np.arange(T, like=lengths) < lengths[:, None])[:, None, None, :]  # (B, 1, 1, T)


def mask_from_blocked(blocked: np.ndarray) -> np.ndarray:
    """Convert a mask in which 1 (or True) means hidden, as in Keras lessons and in PyTorch's `key_padding_mask`.

    Formula: mask = (blocked == 0)

    Shapes: unchanged, of bool

    Raises: ValueError when `blocked` contains a number other than 0 and 1.

    Source: the conventions of Keras lessons and of torch.nn.MultiheadAttention, converted to this book's convention.

    >>> mask_from_blocked(np.array([[0, 0, 1]]))
    array([[ True,  True, False]])
    """
    require_array("mask_from_blocked", "blocked", blocked)
    if not bool(((blocked == 0) | (blocked == 1)).all()):
        fix = "if it holds 0 and large negative numbers, use mask_from_additive"
        raise value_error("mask_from_blocked", "blocked", "made of 0 (visible) and 1 (hidden)", "other numbers", fix)
    return blocked == 0


def mask_from_additive(additive: np.ndarray) -> np.ndarray:
    """Convert a mask that is added to the scores: 0 is visible, -1e4 and below (-1e9, -9e15, -inf) is hidden.

    Formula: mask = (additive == 0)

    Shapes: unchanged, of bool

    Raises: TypeError when `additive` is not an array of floats; ValueError when it contains a number between -1e4 and
    0, or above 0: then it is a bias, which changes scores but hides nothing.

    Source: the 0 / -1e9 convention of Keras lessons and of Hugging Face's extended attention masks.

    >>> mask_from_additive(np.array([[0.0, -1e9, -np.inf]]))
    array([[ True, False, False]])
    """
    _check_additive(additive)
    return additive == 0


def query_and_key_lengths(op: str, T_q: int, T_k: int | None) -> tuple[int, int]:
    """T_q and T_k (by default T_q) as Python integers, because a difference of small NumPy integers can overflow."""
    T_q = require_size(op, "T_q", T_q, at_least=0)
    return T_q, T_q if T_k is None else require_size(op, "T_k", T_k, at_least=0)


def _checked_lengths(lengths: np.ndarray | list[int], T: int) -> np.ndarray:
    lengths = np.array(lengths, None if lengths else int) if isinstance(lengths, list) else lengths
    require_size("padding_mask", "T", T, at_least=0)
    require_integers("padding_mask", "lengths", lengths)
    if lengths.ndim != 1:
        raise shape_error("padding_mask", "lengths", "(B,), one length for each sequence", lengths.shape)
    require_integers("padding_mask", "lengths", lengths, below=int(T) + 1, fix=f"is T = {T} the padded length?")
    return lengths


def _check_additive(additive: np.ndarray) -> None:
    require_array("mask_from_additive", "additive", additive)
    if additive.dtype.kind != "f":
        fix = "for 0 and 1 use mask_from_blocked (1 = hidden) or mask.astype(bool) (1 = visible)"
        raise dtype_error("mask_from_additive", "additive", "an array of floats", additive.dtype, fix)
    if not bool(((additive == 0) | (additive <= -1e4)).all()):
        fix = "numbers in between are a bias: pass them as bias="
        raise value_error("mask_from_additive", "additive", "made of 0 and numbers of -1e4 or below", "others", fix)
