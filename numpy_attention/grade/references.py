"""The right answers, under the names that the exercises use: the package's own, and a few written for an exercise.

A gradient is compared with differences of these forwards; a result without a gradient, with these results.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from numpy_attention import inside, layers, ops
from numpy_attention.pretrained.low_rank import LowRank
from numpy_attention.training.byte_pairs import Pair, merged
from numpy_attention.training.optimizers import Adam

Gradients = dict[str, np.ndarray]


def _causal_softmax(x: np.ndarray, mask: np.ndarray) -> Any:
    y, _ = ops.softmax(np.where(mask, x, -np.inf))
    return y, y


def _causal_softmax_backward(dy: np.ndarray, cache: np.ndarray) -> np.ndarray:
    y = cache
    dx: np.ndarray = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    return dx


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Attention and its weights."""
    scores = q @ k.swapaxes(-1, -2) / np.asarray(np.sqrt(k.shape[-1]), q.dtype)
    weights, _ = ops.softmax(scores if mask is None else np.where(mask, scores, -np.inf))
    return weights @ v, weights


def tied_table(ids: np.ndarray, table: np.ndarray, w: np.ndarray) -> Any:
    """A model of one line, whose table serves at both ends."""
    x = table[ids]
    h = x @ w
    return h @ table.T, (ids, table, w, x, h)


def tied_table_backward(dlogits: np.ndarray, cache: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both gradients of the table, added."""
    ids, table, w, x, h = cache
    dh = dlogits @ table
    dtable = rows_together(dlogits, h)
    np.add.at(dtable, ids, dh @ w.T)
    return dtable, rows_together(x, dh)


def rows_together(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a^T b over all rows."""
    return np.asarray(a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1]))


def next_outputs(
    x: np.ndarray, past_k: np.ndarray, past_v: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The outputs of new tokens behind stored ones, and the longer store."""
    k, v = np.concatenate([past_k, x @ w_k]), np.concatenate([past_v, x @ w_v])
    y, _ = attention(x @ w_q, k, v, np.tri(len(x), len(k), len(past_k), dtype=bool))
    return y, k, v


def learn_merges(ids: list[int], num_merges: int) -> list[Pair]:
    """Count, merge the most frequent pair, and begin again."""
    merges: list[Pair] = []
    while len(merges) < num_merges:
        counts = Counter(pairwise(ids))
        most = max(counts.values(), default=0)
        if most < 2:
            break
        best = min(pair for pair, count in counts.items() if count == most)
        ids = merged(ids, best, 256 + len(merges))
        merges.append(best)
    return merges


def encode(ids: list[int], merges: list[Pair]) -> list[int]:
    """Replay the merges in the order of their learning."""
    for i, pair in enumerate(merges):
        ids = merged(ids, pair, 256 + i)
    return ids


def top_p(logits: np.ndarray, p: float) -> np.ndarray:
    """The fewest likeliest tokens whose probabilities sum to at least p, made to sum to one."""
    y, _ = ops.softmax(logits)
    order = np.argsort(-y, axis=-1, kind="stable")
    ranked = np.take_along_axis(y, order, axis=-1)
    before = np.cumsum(ranked, axis=-1) - ranked
    before[..., 0] = 0.0
    kept = np.zeros_like(y)
    np.put_along_axis(kept, order, np.where(before < p, ranked, 0.0), axis=-1)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


def draw(probabilities: np.ndarray, u: float) -> int:
    """The first token at which the sum of the probabilities passes u."""
    cumulative = np.cumsum(probabilities)
    return int((cumulative <= u * cumulative[-1]).sum())


def function_of_rows(x: np.ndarray) -> np.ndarray:
    """The function that the exercise on differences hands out."""
    return np.asarray(x * np.tanh(x.sum(axis=-1, keepdims=True)))


def differences(x: np.ndarray, dy: np.ndarray, h: float) -> np.ndarray:
    """Central differences of sum(dy * f(x)), element by element."""
    f = function_of_rows
    return element_by_element(x, h, lambda step: ((f(x + step) - f(x - step)) * dy).sum() / (2 * h))


def element_by_element(x: np.ndarray, h: float, quotient: Callable[[np.ndarray], float]) -> np.ndarray:
    """The quotient for every element of x: that of the step which is h there, and 0 elsewhere."""
    dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        dx[i] = quotient(step)
    return dx


def joined_gradient(grads: list[Gradients], counts: list[int]) -> Gradients:
    """The gradient of the mean over all places, from those of the means over each worker's own."""
    return {
        name: np.asarray(sum(n * own[name] for n, own in zip(counts, grads)) / max(sum(counts), 1)) for name in grads[0]
    }


def prefix_matching(weights: np.ndarray, N: int) -> np.ndarray:
    """The mean weight of the second half's queries on the key behind their earlier copy."""
    t = np.arange(N, 2 * N)
    return np.asarray(weights[:, t, t - N + 1].mean(axis=-1))


def direct_effect(
    part: np.ndarray, stream: np.ndarray, gamma: np.ndarray, direction: np.ndarray, eps: float
) -> np.ndarray:
    """What a part of the stream adds to a logit, through the norm of the whole."""
    sigma = np.sqrt(stream.var(axis=-1) + np.asarray(eps, stream.dtype))
    centred = part - part.mean(axis=-1, keepdims=True)
    return np.asarray((centred * gamma * direction).sum(axis=-1) / sigma)


_OURS = SimpleNamespace(
    **{name: getattr(ops, name) for name in ops.__all__},
    causal_softmax=_causal_softmax, causal_softmax_backward=_causal_softmax_backward,
    MultiHeadAttention=layers.MultiHeadAttention, Adam=Adam, LowRank=LowRank,
    EncoderBlock=lambda d_model, num_heads, d_ff, rng, dtype: layers.EncoderBlock(
        d_model, num_heads, d_ff, rng, pre_norm=True, activation="gelu", dtype=dtype),
    attention=attention, tied_table=tied_table, tied_table_backward=tied_table_backward, next_outputs=next_outputs,
    learn_merges=learn_merges, encode=encode, top_p=top_p, draw=draw, differences=differences,
    joined_gradient=joined_gradient, edit=inside.edit, edit_backward=inside.edit_backward,
    prefix_matching=prefix_matching, direct_effect=direct_effect,
)


def ours() -> Any:
    """The reference answers, under the names that the exercises use."""
    return _OURS
