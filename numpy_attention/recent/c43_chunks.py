"""Chapter 43. The recurrence in chunks

Chapter 42 takes one token at a time. Its matrix products are small, so the code is slow. This chapter computes the same
function for C tokens, a **chunk**, at once. Inside a chunk it compares all pairs of tokens, as Chapter 6 does; the
state connects the chunks. So the work grows with T C, not with T^2. Nearly all work is in large matrix products, and
only one state is stored for each chunk.

Count the tokens of a chunk from 1 to C. S is the state before token 1, and G_i = decay_1 + ... + decay_i. Token j
writes k_j^T new_j. Until token i, the decays multiply this by exp(G_i - G_j). So the state after token i is

    S_i = exp(G_i) S + sum_{j <= i} exp(G_i - G_j) k_j^T new_j

Multiplied by q_i, this gives y_i. Multiplied by k_i, it gives the old value of the delta rule; a token reads the old
value before it writes, so the sum of old has only the terms with j < i:

    y   = scale (exp(G) q S + B new)        B_ij = exp(G_i - G_j) q_i . k_j    for j <= i, otherwise 0
    old = exp(G) k S + A new                A_ij = exp(G_i - G_j) k_i . k_j    for j < i, otherwise 0
    new = beta (v - old)                    without the delta rule: new = v
    S_C = exp(G_C) S + (exp(G_C - G) k)^T new

Now new is on both sides: new = beta (v - exp(G) k S) - beta A new. The matrix M = I + beta A has ones on its diagonal
and zeros above it, so it has an inverse, and new = M^-1 beta (v - exp(G) k S). This way to multiply many matrices
I - beta k^T k is called the **WY form**. Without state, decay and delta rule, one chunk is y = scale B v: Chapter 6
without its softmax.

Backward: the lines from the last to the first, as in Chapter 42. new is used in y, in S_C, and in old of later tokens.
So dnew = (parts from y and S_C) + A^T dold with dold = -beta dnew, and therefore dnew = M^-T (parts from y and S_C).

The decays are used in exp(G_i), and in exp(D_ij) with D_ij = G_i - G_j = decay_{j+1} + ... + decay_i. If y = exp(D) x,
then dD = y . dy. So

    dG_i  = (exp(G_i) q_i) . d(exp(G_i) q_i) + (the same with k_i)       dG_C  += rowsum(exp(G_C) S * dS_C)
    dD_ij = B_ij dB_ij + A_ij dA_ij                                      dD_Cj += (exp(D_Cj) k_j) . d(exp(D_Cj) k_j)

decay_t is a term of G_i for i >= t, and of D_ij for j < t <= i. In words: it acts on everything that was written before
token t and is read at token t or later.

    ddecay_t = sum_{i >= t} (dG_i + sum_{j < t} dD_ij)

Three things that are easy to get wrong. First, exp(G_i) exp(-G_j) overflows if the decays are strong; only
exp(G_i - G_j) with j <= i is safe. The code even sums the decays between j and i, because the difference of two large
sums has few correct digits. Second, a shorter formula adds dD_ij to dG_i and subtracts it from dG_j; then ddecay_t is
dG_t + ... + dG_C, because the pairs with t <= j cancel. But these pairs do not have the factor exp(decay_t). If decay_t
is below about -16, they are 10^7 times as large as ddecay_t, and in float32 ddecay_t is lost in their round-off. Third,
dS must go from each chunk to the chunk before; a test with one chunk does not find this mistake.
"""

import math
from typing import Any

import numpy as np

from numpy_attention.errors import require_size
from numpy_attention.ops.c01a_sums import dot_in_rows, sum_to_shape
from numpy_attention.recent.c42_recurrence import LinearAttentionCache, as_given, check_grads, check_recurrence, grouped


def chunked_linear_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray | None = None, beta: np.ndarray | None = None,
    state: np.ndarray | None = None, scale: float | None = None, chunk_size: int = 64,
) -> tuple[np.ndarray, LinearAttentionCache]:
    """The same function as `linear_attention`, computed for many tokens at once.

    Formula: in each chunk new = (I + beta A)^-1 beta (v - exp(G) k S), y = scale (exp(G) q S + B new), A and B as above

    Shapes: as `linear_attention`. The last chunk may be shorter than the others.

    Units: chunk_size in tokens. If the rows of the state have different decays, a chunk needs chunk_size^2 d_k numbers
    for each head; then smaller chunks are faster, for example 16.

    Raises: ValueError and TypeError as `linear_attention`, and for a chunk_size below 1.

    Source: Yang et al., Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), section 3;
    with decay: Yang et al., Gated Delta Networks (2024), section 3.3.

    >>> rng = np.random.default_rng(0)
    >>> (q, k, v), beta = rng.normal(size=(3, 7, 4)), rng.random((7, 1))
    >>> y, cache = chunked_linear_attention(q, k, v, beta=beta, chunk_size=3)
    >>> len(cache.states)  # before the first chunk, and after each of three chunks
    4
    """
    check_recurrence("chunked_linear_attention", q, k, v, decay, beta, state, scale)
    chunk_size = require_size("chunked_linear_attention", "chunk_size", chunk_size)
    inputs, shape = (q, k, v, decay, beta, state), (*q.shape[:-1], v.shape[-1])
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    q, k, v, decay, beta, S = grouped(*inputs)
    y = np.empty_like(v, shape=(*q.shape[:-1], v.shape[-1]))  # (..., H_kv, G, T, d_v)
    states = [S]
    for at in _chunks(k.shape[-2], chunk_size):
        q_read, k_write, kept, B, new, *_ = _chunk(at, q, k, v, decay, beta, S)
        y[..., at, :] = scale * (q_read @ S + B @ new)
        S = kept * S + k_write.swapaxes(-1, -2) @ new  # (..., H_kv, 1, d_k, d_v)
        states.append(S)
    return y.reshape(shape), LinearAttentionCache(inputs, tuple(states), S[..., 0, :, :], scale, chunk_size)


def chunked_linear_attention_backward(
    dy: np.ndarray, cache: LinearAttentionCache, dstate_end: np.ndarray | None = None
) -> tuple[Any, ...]:
    """Gradients of `chunked_linear_attention`: each chunk is computed again from its first state, the last chunk first.

    Shapes: dy as y; dstate_end, the gradient of `cache.state` from the next call, if there is one -> dq, dk, dv,
    ddecay, dbeta, dstate with the shapes of the arguments, or None for an argument that was None
    """
    dy, dS = check_grads("chunked_linear_attention_backward", dy, cache, dstate_end)
    q, k, v, decay, beta, _ = grouped(*cache.inputs)
    grads: list[Any] = [None if x is None else np.zeros_like(x) for x in (q, k, v, decay, beta)]
    dq, dk, dv, ddecay, dbeta = grads
    for at, S in reversed(list(zip(_chunks(k.shape[-2], cache.chunk_size), cache.states))):
        here = _chunk(at, q, k, v, decay, beta, S)
        q_read, k_write, kept, B, new, k_read, A, inverse, from_start, to_end, shares = here
        q_c, k_c, dy_c, dS_end = q[..., at, :], k[..., at, :], cache.scale * dy[..., at, :], dS

        # S_end = kept * S + k_write^T @ new
        dS = kept * dS_end
        dk_write = new @ dS_end.swapaxes(-1, -2)
        dnew = k_write @ dS_end
        # y = scale * (q_read @ S + B @ new)
        dq_read = dy_c @ S.swapaxes(-1, -2)
        dS = dS + (q_read.swapaxes(-1, -2) @ dy_c).sum(axis=-3, keepdims=True)  # over the G heads
        dB = dy_c @ new.swapaxes(-1, -2)
        dnew = dnew + (B.swapaxes(-1, -2) @ dy_c).sum(axis=-3, keepdims=True)
        # B = scores(q, k), q_read = exp(G) * q, k_write = exp(G_C - G) * k
        dq_c, dk_c = _scores_backward(dB, q_c, k_c, shares)
        dq[..., at, :] = dq_c + from_start * dq_read
        dk[..., at, :] = dk_c.sum(axis=-3, keepdims=True) + to_end * dk_write
        dv[..., at, :] = dnew  # without the delta rule
        if beta is not None:
            # new = beta * (v - old), where old contains new
            dnew = inverse.swapaxes(-1, -2) @ dnew
            old = k_read @ S + A @ new
            dbeta[..., at, :] = dot_in_rows(dnew, v[..., at, :] - old)
            dv[..., at, :] = beta[..., at, :] * dnew
            dold = -dv[..., at, :]
            # old = k_read @ S + A @ new
            dk_read = dold @ S.swapaxes(-1, -2)
            dS = dS + k_read.swapaxes(-1, -2) @ dold
            dA = np.tril(dold @ new.swapaxes(-1, -2), -1)
            # A = scores(k, k) below the diagonal, k_read = exp(G) * k
            dk_reading, dk_writing = _scores_backward(dA, k_c, k_c, shares)
            dk[..., at, :] += dk_reading + dk_writing + from_start * dk_read
        if decay is not None:
            # q_read = exp(G) * q, B = scores(q, k); one decay for all rows of the state: sums over d_k
            dG = sum_to_shape(q_read * dq_read, to_end.shape)
            dD = _differences_backward(dB, B, q_c, k_c, shares)
            if beta is not None:
                # k_read = exp(G) * k, A = scores(k, k)
                dG += sum_to_shape(k_read * dk_read, to_end.shape)
                dD += _differences_backward(dA, A, k_c, k_c, shares)
            # S_end = exp(G_C) * S + k_write^T @ new, k_write = exp(D_C) * k
            dG[..., -1:, :] += sum_to_shape(dot_in_rows(kept * S, dS_end).swapaxes(-1, -2), dG[..., -1:, :].shape)
            dD[..., -1, :, :] += sum_to_shape(k_write * dk_write, to_end.shape)
            # G_i = decay_1 + ... + decay_i, D_ij = decay_{j+1} + ... + decay_i
            C = k_c.shape[-2]
            since = np.tri(C, dtype=k.dtype, like=k).T  # (C, C), since_ti is 1 for i >= t: since @ x sums x_i from t on
            before = np.tri(C, k=-1, dtype=k.dtype, like=k)[..., None]  # (C, C, 1), before_tj is 1 for j < t
            dD = (since @ dD.reshape(*dG.shape[:-1], C * dG.shape[-1])).reshape(dD.shape)
            ddecay[..., at, :] = since @ dG + (before * dD).sum(axis=-2)
    return as_given(cache, dq, dk, dv, ddecay, dbeta, dS)


def _chunks(T: int, chunk_size: int) -> list[slice]:
    return [slice(start, start + chunk_size) for start in range(0, T, chunk_size)]


def _chunk(at: slice, q: Any, k: Any, v: Any, decay: Any, beta: Any, S: np.ndarray) -> tuple[Any, ...]:
    """What the tokens of one chunk read, compare and write, as in the derivation; shares_ij is exp(G_i - G_j)."""
    q, k, new = q[..., at, :], k[..., at, :], v[..., at, :]
    C = k.shape[-2]
    decay = np.zeros_like(k, shape=(C, 1)) if decay is None else decay[..., at, :]  # (..., C, n), n = 1 or d_k
    lower = np.tri(C, dtype=bool, like=k)[..., None]  # (C, C, 1)
    after_j = np.where(lower & ~np.swapaxes(lower, 0, 1), decay[..., None, :], 0)  # decay_i if j < i, (..., C, C, n)
    shares = np.exp(np.cumsum(after_j, axis=-3)) * lower
    from_start = np.exp(np.cumsum(decay, axis=-2))  # exp(G), (..., C, n)
    to_end, kept = shares[..., -1, :, :], from_start[..., -1, :, None]  # exp(G_C - G), exp(G_C)
    k_read, A, inverse = from_start * k, None, None
    if beta is not None:
        A = np.tril(_scores(k, k, shares), -1)  # (..., H_kv, 1, C, C)
        inverse = _inverse(beta[..., at, :] * A)  # of I + beta A
        new = inverse @ (beta[..., at, :] * (new - k_read @ S))
    B = _scores(q, k, shares)  # (..., H_kv, G, C, C)
    return from_start * q, to_end * k, kept, B, new, k_read, A, inverse, from_start, to_end, shares


def _scores(x: np.ndarray, k: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """x_i . k_j times exp(G_i - G_j), which is a number, or one number for each of the d_k products."""
    if shares.shape[-1] == 1:
        return (x @ k.swapaxes(-1, -2)) * shares[..., 0]
    return np.einsum("...id,...jd,...ijd->...ij", x, k, shares)


def _scores_backward(dscores: np.ndarray, x: np.ndarray, k: np.ndarray, shares: np.ndarray) -> tuple[Any, Any]:
    if shares.shape[-1] == 1:
        dscores = dscores * shares[..., 0]
        return dscores @ k, dscores.swapaxes(-1, -2) @ x
    dx = np.einsum("...ij,...jd,...ijd->...id", dscores, k, shares)
    return dx, np.einsum("...ij,...id,...ijd->...jd", dscores, x, shares)


def _differences_backward(dscores: np.ndarray, scores: np.ndarray, x: Any, k: Any, shares: np.ndarray) -> np.ndarray:
    """dD_ij, the gradient of the differences G_i - G_j in `_scores`, (..., C, C, n), summed over the heads of x."""
    if shares.shape[-1] == 1:
        return (dscores * scores).sum(axis=-3, keepdims=True)[..., None]
    return (dscores[..., None] * x[..., :, None, :]).sum(axis=-4, keepdims=True) * k[..., None, :, :] * shares


def _inverse(L: np.ndarray) -> np.ndarray:
    """The inverse of I + L, row by row, for L with zeros on and above the diagonal (forward substitution)."""
    X = np.zeros_like(L)
    for i in range(L.shape[-1]):
        X[..., i, i] = 1
        X[..., i : i + 1, :i] = -L[..., i : i + 1, :i] @ X[..., :i, :i]
    return X
