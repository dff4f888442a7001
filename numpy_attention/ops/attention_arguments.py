"""Chapter 6, appendix. What attention accepts

Four arrays must agree in up to seven sizes, and most mistakes with attention are shapes that almost fit. This
file holds the checks for both forms of attention (Chapters 6 and 12), so that the chapters stay formulas:

    q (..., H_q,  T_q, d_k)        d_k is shared by q and k: they are multiplied with each other
    k (..., H_kv, T_k, d_k)        T_k is shared by k and v: a value belongs to its key
    v (..., H_kv, T_k, d_v)        the leading axes are the same in all three, but H_kv may divide H_q
    mask, bias                     broadcastable to (..., H_q, T_q, T_k)
"""

import numpy as np

from numpy_attention.errors import broadcasts_to, require_bools, require_float, require_number, shape_error

OTHER_MASKS = (
    "1 = may look: mask.astype(bool); 1 = hidden: mask_from_blocked(mask); "
    "0 / -inf to be added: mask_from_additive(mask)"
)


def check_attention_arguments(
    op: str,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    scale: float | None = None,
) -> None:
    """Raise the one error that helps when the arguments of attention do not fit each other, or are none.

    Shapes: as at the head of this file

    Raises: ValueError for shapes that do not meet; TypeError for dtypes.
    """
    require_float(op, optional="bias", q=q, k=k, v=v, bias=bias)
    if q.ndim < 2 or q.shape[-1] == 0:
        raise shape_error(op, "q", "(..., T_q, d_k) with d_k at least 1", q.shape)
    if scale is not None:
        require_number(op, "scale", scale, fix="None is 1 / sqrt(d_k)")
    d_k = q.shape[-1]
    if k.ndim != q.ndim or k.shape[-1] != d_k:
        transposed = k.ndim == q.ndim and k.shape[-2] == d_k
        fix = "did you pass k already transposed?" if transposed else "q and k are compared, so they share d_k"
        raise shape_error(op, "k", f"(..., T_k, d_k) with d_k = {d_k} as in q {q.shape}", k.shape, fix)
    if k.shape[-2] == 0:
        raise shape_error(op, "k", "(..., T_k, d_k) with at least one key", k.shape, "to hide keys use a mask")
    if v.ndim != q.ndim or v.shape[:-1] != k.shape[:-1]:
        expected = f"(..., T_k, d_v) with the leading sizes {k.shape[:-1]} of k {k.shape}"
        raise shape_error(op, "v", expected, v.shape, "every key has one value")
    if q.shape[:-2] != k.shape[:-2]:
        _check_grouped_heads(op, q, k)

    scores_shape = (*q.shape[:-1], k.shape[-2])
    if mask is not None:
        require_bools(op, "mask", mask, "boolean, True = may look", OTHER_MASKS, kind="a boolean array")
        _check_broadcast(op, "mask", mask, scores_shape)
    if bias is not None:
        _check_broadcast(op, "bias", bias, scores_shape)


def _check_grouped_heads(op: str, q: np.ndarray, k: np.ndarray) -> None:
    same_lead = q.shape[:-3] == k.shape[:-3]
    if q.ndim >= 4 and same_lead and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0:
        return
    if q.ndim >= 4 and same_lead:
        fix = f"grouped heads need H_q % H_kv == 0, and {q.shape[-3]} is no multiple of {k.shape[-3]}"
    elif q.ndim == 3:
        fix = "with three axes the first is the batch; grouped heads need (B, H, T, d)"
    else:
        fix = "q and k must come from the same batch"
    raise shape_error(op, "k", f"(..., T_k, d_k) with the leading sizes {q.shape[:-2]} of q {q.shape}", k.shape, fix)


def _check_broadcast(op: str, argument: str, array: np.ndarray, scores_shape: tuple[int, ...]) -> None:
    if broadcasts_to(array.shape, scores_shape):
        return
    fix = "the last two axes are queries and keys"
    if array.ndim > len(scores_shape):
        fix = "it has an axis too many: a padding_mask is made for q (B, H, T, d); for q (B, T, d) take its [:, 0]"
    elif array.shape[-2:] == scores_shape[:-3:-1]:
        fix = "did you pass it transposed? rows are queries, columns are keys"
    elif array.ndim == 2 and array.shape == (scores_shape[0], scores_shape[-1]):
        fix = f"for one row of keys a sequence, give it the missing axes: {argument}[:, None, None, :]"
    raise shape_error(op, argument, f"broadcastable to (..., T_q, T_k) = {scores_shape}", array.shape, fix)
