"""Forward formulas once more, as plainly as they can be written: no stability, no speed, float64, one row at a time.

A backward that fits a wrong forward passes every gradient check, so the forward needs a witness of its own.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """exp(x) / sum exp(x), shifted first, or 500 would overflow."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Row by row: less the mean, over the root of variance + eps."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        centred = row - sum(row) / len(row)
        variance = sum(centred**2) / len(row)
        rows.append(gamma * centred / math.sqrt(variance + eps) + beta)
    return np.reshape(rows, x.shape)


def rms_norm(x: np.ndarray, gamma: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """Row by row: over the root of the mean square + eps."""
    rows = [gamma * row / math.sqrt(sum(row**2) / len(row) + eps) for row in x.reshape(-1, x.shape[-1])]
    return np.reshape(rows, x.shape)


def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """y_j = sum_i x_i w_ij + b_j."""
    y = np.einsum("...i,ij->...j", x, w)
    return y if b is None else y + b


def embedding(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
    """A row for each id."""
    return np.reshape([table[i] for i in ids.reshape(-1)], (*ids.shape, table.shape[1]))


def cross_entropy(
    logits: np.ndarray, targets: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0
) -> np.ndarray:
    """Place by place, over those that count."""
    V, losses = logits.shape[-1], []
    for x, t in zip(logits.reshape(-1, V), targets.reshape(-1)):
        if t != ignore_index:
            log_p = x - x.max() - math.log(sum(np.exp(x - x.max())))
            wanted = np.full(V, label_smoothing / V)
            wanted[t] += 1.0 - label_smoothing
            losses.append(-sum(wanted * log_p))
    return np.asarray(sum(losses) / len(losses) if losses else 0.0)


def linear_cross_entropy(x: np.ndarray, table: np.ndarray, targets: np.ndarray, **options: Any) -> np.ndarray:
    """All logits, and the loss of them."""
    options.pop("block_size", None)
    return cross_entropy(np.einsum("...d,vd->...v", x, table), targets, **options)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, bias: np.ndarray | None = None,
    scale: float | None = None, causal: bool = False, window: int | None = None, slopes: np.ndarray | None = None,
    **_: Any,
) -> np.ndarray:
    """Query by query over the keys it may look at."""
    T_q, T_k = q.shape[-2], k.shape[-2]
    if k.ndim > 2 and k.shape[-3] != q.shape[-3]:  # grouped heads
        k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    shape = (*q.shape[:-1], T_k)
    seen = np.broadcast_to(np.ones((), bool) if mask is None else mask, shape)
    added = np.broadcast_to(np.zeros(()) if bias is None else bias, shape)
    if causal:
        seen = seen & np.tri(T_q, T_k, T_k - T_q, dtype=bool)
    if window is not None:
        seen = seen & ~np.tri(T_q, T_k, T_k - T_q - window, dtype=bool)
    if slopes is not None:
        added = added - slopes[:, None, None] * abs(np.subtract.outer(np.arange(T_k - T_q, T_k), np.arange(T_k)))
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    for place in np.ndindex(q.shape[:-1]):
        *lead, _i = place
        keys = np.flatnonzero(seen[place])
        if len(keys):
            scores = k[tuple(lead)][keys] @ q[place] * (q.shape[-1] ** -0.5 if scale is None else scale)
            y[place] = softmax(scores + added[place][keys]) @ v[tuple(lead)][keys]
    return y


def concat_heads(x: np.ndarray) -> np.ndarray:
    """Head beside head."""
    return np.concatenate([x[..., h, :, :] for h in range(x.shape[-3])], axis=-1)


def split_heads(x: np.ndarray, num_heads: int) -> np.ndarray:
    """Head h owns columns h d_k to (h + 1) d_k."""
    return np.stack(np.split(x, num_heads, axis=-1), axis=-3)


def gelu(x: np.ndarray, approximate: str = "tanh") -> np.ndarray:
    """x times the share of a normal variable below x, or its tanh form."""

    def share(t: float) -> float:
        if approximate == "none":
            return math.erfc(-t / math.sqrt(2)) / 2
        return (1 + math.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3))) / 2

    return np.reshape([t * share(t) for t in x.reshape(-1).tolist()], x.shape)


def dropout(x: np.ndarray, rate: float, rng: np.random.Generator | None) -> np.ndarray:
    """Off without a generator; what it draws with one is its own affair."""
    if rng is None or rate == 0.0:
        return x
    kept = rng.random(x.shape, dtype=np.float32) >= rate
    return np.asarray(np.where(kept, x / (1.0 - rate), 0.0))


def multi_head_attention(x: np.ndarray, context: np.ndarray | None = None, **arrays: Any) -> np.ndarray:
    """Every head by itself, on its own columns of the weights; heads are as many as the mask's second axis says."""
    num_heads, mask = arrays["num_heads"], arrays.get("mask")
    context = x if context is None else context

    def heads(inputs: np.ndarray, name: str) -> np.ndarray:
        y = inputs @ arrays[f"w_{name}"]
        return split_heads(y if f"b_{name}" not in arrays else y + arrays[f"b_{name}"], num_heads)

    y = concat_heads(attention(heads(x, "q"), heads(context, "k"), heads(context, "v"), mask)) @ arrays["w_o"]
    return y if "b_o" not in arrays else np.asarray(y + arrays["b_o"])


def low_rank(x: np.ndarray, w: np.ndarray, a: np.ndarray, b: np.ndarray, alpha: float) -> np.ndarray:
    """x times the matrix with the change added to it."""
    return np.einsum("...i,ij->...j", x, w + alpha / len(b) * np.einsum("ir,rj->ij", a, b))


def edit(x: np.ndarray, keep: np.ndarray | None = None, add: np.ndarray | None = None) -> np.ndarray:
    """Number by number."""
    kept = np.broadcast_to(np.ones((), bool) if keep is None else keep, x.shape)
    added = np.broadcast_to(np.zeros(()) if add is None else add, x.shape)
    return np.reshape([(x[i] if kept[i] else 0.0) + added[i] for i in np.ndindex(x.shape)], x.shape)


PLAIN: dict[str, Callable[..., np.ndarray]] = {
    "softmax": softmax, "layer_norm": layer_norm, "rms_norm": rms_norm, "linear": linear, "embedding": embedding,
    "cross_entropy": cross_entropy, "scaled_dot_product_attention": attention, "tiled_attention": attention,
    "linear_cross_entropy": linear_cross_entropy, "concat_heads": concat_heads, "split_heads": split_heads,
    "gelu": gelu, "dropout": dropout, "edit": edit,
}
