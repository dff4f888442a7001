"""Chapter 42. Attention as a recurrence

In Chapter 6 a new token is compared with all earlier keys, so each token costs more than the token before it. Without
the softmax, the causal sum can be computed in another order. With rows q, k and v:

    y_t = sum_{s <= t} (q_t . k_s) v_s = q_t S_t        S_t = sum_{s <= t} k_s^T v_s = S_{t-1} + k_t^T v_t

S is the **state**, a matrix (d_k, d_v). The state does not grow with the text, and every token costs the same: the
token writes one outer product into the state, and its query reads from the state. But a plain sum never forgets. The
keys are not orthogonal, so after many tokens an answer contains parts of many values. Two additions remove old values.
Decay (the gated rule) multiplies row i of the state by exp(decay_i), a number from 0 to 1. With the delta rule, a token
first reads the old value of its key, and writes beta (v - old), a step of gradient descent on |k S - v|^2 / 2. With
beta = 1 and a key of length 1, the new value replaces the old value. All lines of one token:

    kept = exp(decay) S         without decay: kept = S
    old  = k kept
    new  = beta (v - old)       without the delta rule: new = v
    S    = kept + k^T new
    y    = scale q S

Backward: take the tokens from the last to the first, and the lines of a token from the last to the first. Only the
state connects two tokens: dS arrives from the token after, and the last line gives dS for the token before.

    y = scale q S               dq = scale dy S^T           dS += scale q^T dy
    S = kept + k^T new          dk = new dS^T               dnew = k dS             dkept = dS
    new = beta (v - old)        dbeta = dnew . (v - old)    dv = beta dnew          dold = -dv
    old = k kept                dk += dold kept^T           dkept += k^T dold
    kept = exp(decay) S         ddecay = rowsum(dkept * kept)                       dS = exp(decay) dkept

Three things that are easy to get wrong. The delta rule uses the key twice, and the kept state twice: each gradient has
two parts. ddecay needs the kept rows, not the rows before the decay, because exp is its own derivative. And if a next
call uses the last state, dS does not start at 0, but at the gradient that the next call gives, `dstate_end`.

The backward needs the state before each token, and this chapter stores them all. Chapter 43 stores only a few.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import require_cotangent, require_number, value_error
from numpy_attention.ops.c01a_sums import dot_in_rows, sum_to_shape
from numpy_attention.ops.c06_attention import FIXES as OF_ATTENTION
from numpy_attention.shapes import check_shapes

SHAPES = (
    "q: ... H_q T d_k, k: ... H_kv T d_k, v: ... H_kv T d_v, decay?: to ... H_kv T d_k, beta?: to ... H_kv T 1, "
    "state?: ... H_kv d_k d_v; H_q = G*H_kv; T >= 1; d_k >= 1"
)
NO_HEADS = (  # with fewer than four axes, as in Chapter 6
    "q: ... T d_k, k: ... T d_k, v: ... T d_v, decay?: to ... T d_k, beta?: to ... T 1, state?: ... d_k d_v; "
    "T >= 1; d_k >= 1"
)
FIXES = {
    **OF_ATTENTION, "k": "q and k have the same T and d_k; an earlier text comes in as its state, not as its keys",
    **dict.fromkeys(("state", "state: ..."), "pass cache.state of the call before"),
}


class LinearAttentionCache(NamedTuple):
    """The arguments and the stored states; `state` is the state after the last token, for the next call."""

    inputs: tuple[Any, ...]  # q, k, v, decay, beta, state as given
    states: tuple[np.ndarray, ...]  # (..., H_kv, 1, d_k, d_v): before the first token, after each chunk of tokens
    state: np.ndarray  # (..., H_kv, d_k, d_v)
    scale: float
    chunk_size: int  # 1 in this chapter


def linear_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray | None = None, beta: np.ndarray | None = None,
    state: np.ndarray | None = None, scale: float | None = None,
) -> tuple[np.ndarray, LinearAttentionCache]:
    """Causal attention without a softmax: each token writes into a state of fixed size, and its query reads the state.

    Formula: S_t = exp(decay_t) S_{t-1} + k_t^T new_t, new_t = beta_t (v_t - k_t exp(decay_t) S_{t-1}),
    y_t = scale q_t S_t, scale = 1 / sqrt(d_k) unless given. Without decay, exp(decay) is 1; without beta, new is v.

    Shapes: q (..., H_q, T, d_k), k (..., H_kv, T, d_k), v (..., H_kv, T, d_v) -> y (..., H_q, T, d_v);
    decay broadcastable to (..., H_kv, T, d_k), beta to (..., H_kv, T, 1); state (..., H_kv, d_k, d_v), zeros if None.
    As in Chapter 6, H_kv may be a divisor of H_q. `cache.state` is the state after the last token.

    Units: decay in nats, at most 0 (up to 1 is accepted, for numerical derivatives).

    Raises: ValueError when shapes do not fit, for no tokens or a decay above 1; TypeError for dtypes that differ.

    Source: Katharopoulos et al., Transformers are RNNs (2020), section 3.4; the delta rule: Schlag et al., Linear
    Transformers Are Secretly Fast Weight Programmers (2021), section 4.2; both: Yang et al., Gated Delta Networks
    (2024), section 3.1.

    >>> k, v = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[3.0], [5.0]])  # two values for one key
    >>> linear_attention(k, k, v, scale=1.0)[0].tolist()
    [[3.0], [8.0]]
    >>> linear_attention(k, k, v, beta=np.ones((2, 1)), scale=1.0)[0].tolist()
    [[3.0], [5.0]]
    """
    check_recurrence("linear_attention", q, k, v, decay, beta, state, scale)
    inputs, shape = (q, k, v, decay, beta, state), (*q.shape[:-1], v.shape[-1])
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    q, k, v, decay, beta, S = grouped(*inputs)
    y = np.empty_like(v, shape=(*q.shape[:-1], v.shape[-1]))  # (..., H_kv, G, T, d_v)
    states = [S]
    for t in range(k.shape[-2]):
        at = slice(t, t + 1)
        kept = S if decay is None else np.exp(decay[..., at, :]).swapaxes(-1, -2) * S  # (..., H_kv, 1, d_k, d_v)
        new = v[..., at, :]  # (..., H_kv, 1, 1, d_v)
        if beta is not None:
            old = k[..., at, :] @ kept
            new = beta[..., at, :] * (new - old)
        S = kept + k[..., at, :].swapaxes(-1, -2) * new
        y[..., at, :] = scale * (q[..., at, :] @ S)  # (..., H_kv, G, 1, d_v)
        states.append(S)
    return y.reshape(shape), LinearAttentionCache(inputs, tuple(states), S[..., 0, :, :], scale, chunk_size=1)


def linear_attention_backward(
    dy: np.ndarray, cache: LinearAttentionCache, dstate_end: np.ndarray | None = None
) -> tuple[Any, ...]:
    """Gradients of `linear_attention`; the derivation is at the top of this chapter.

    Shapes: dy as y; dstate_end, the gradient of `cache.state` from the next call, if there is one -> dq, dk, dv,
    ddecay, dbeta, dstate with the shapes of the arguments, or None for an argument that was None
    """
    dy, dS = check_grads("linear_attention_backward", dy, cache, dstate_end)
    q, k, v, decay, beta, _ = grouped(*cache.inputs)
    grads: list[Any] = [None if x is None else np.zeros_like(x) for x in (q, k, v, decay, beta)]
    dq, dk, dv, ddecay, dbeta = grads
    for t in reversed(range(k.shape[-2])):
        at = slice(t, t + 1)
        k_t, new, dy_t = k[..., at, :], v[..., at, :], cache.scale * dy[..., at, :]
        kept, S = cache.states[t : t + 2]
        if decay is not None:
            share = np.exp(decay[..., at, :]).swapaxes(-1, -2)  # (..., H_kv, 1, 1 or d_k, 1)
            kept = share * kept
        if beta is not None:
            difference = new - k_t @ kept  # v - old
            new = beta[..., at, :] * difference

        # y = scale * q @ S
        dq[..., at, :] = dy_t @ S.swapaxes(-1, -2)
        dS = dS + (q[..., at, :].swapaxes(-1, -2) @ dy_t).sum(axis=-3, keepdims=True)  # over the G heads
        # S = kept + k^T new
        dk_t = new @ dS.swapaxes(-1, -2)
        dnew = k_t @ dS  # (..., H_kv, 1, 1, d_v)
        dkept = dS
        dv[..., at, :] = dnew  # without the delta rule
        if beta is not None:
            # new = beta * (v - old)
            dbeta[..., at, :] = dot_in_rows(dnew, difference)
            dv[..., at, :] = beta[..., at, :] * dnew
            dold = -dv[..., at, :]
            # old = k @ kept
            dk_t = dk_t + dold @ kept.swapaxes(-1, -2)
            dkept = dkept + k_t.swapaxes(-1, -2) * dold
        dk[..., at, :] = dk_t
        dS = dkept
        if decay is not None:
            # kept = exp(decay) * S
            ddecay[..., at, :] = sum_to_shape(dot_in_rows(dkept, kept).swapaxes(-1, -2), decay[..., at, :].shape)
            dS = share * dkept
    return as_given(cache, dq, dk, dv, ddecay, dbeta, dS)


def grouped(q: Any, k: Any, v: Any, decay: Any, beta: Any, state: Any) -> tuple[Any, ...]:
    """The arguments in groups: G heads of q share a head of k and its state, zeros if None.

    Shapes: -> q (..., H_kv, G, T, d_k), k, v, decay, beta (..., H_kv, 1, T, n), state (..., H_kv, 1, d_k, d_v)
    """
    *lead, T, d_k = k.shape
    state = np.zeros_like(v, shape=(*lead, d_k, v.shape[-1])) if state is None else state
    decay, beta = (x if x is None else np.broadcast_to(x, (*lead, T, *(x.shape[-1:] or (1,)))) for x in (decay, beta))
    others = (x if x is None else x[..., None, :, :] for x in (k, v, decay, beta, state))
    return q.reshape(*lead, q.size // max(k.size, 1), T, d_k), *others


def as_given(cache: LinearAttentionCache, dq: Any, *others: Any) -> Any:
    """Each gradient of `grouped` with the shape of its argument, or None if the argument was None."""
    q, *rest = cache.inputs
    found = [dq.reshape(q.shape)]
    for dx, x in zip(others, rest, strict=True):
        found.append(None if x is None else sum_to_shape(dx[..., 0, :, :], x.shape))
    return tuple(found)


def check_recurrence(op: str, q: Any, k: Any, v: Any, decay: Any, beta: Any, state: Any, scale: float | None) -> None:
    """Check the arguments of both forms of linear attention (Chapters 42 and 43).

    Raises: ValueError for shapes that do not fit; TypeError if the arrays are not floats of one dtype.
    """
    arrays = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta, "state": state}
    check_shapes(op, SHAPES if getattr(q, "ndim", 0) >= 4 else NO_HEADS, fixes=FIXES, **arrays)
    if scale is not None:
        require_number(op, "scale", scale, fix="None means 1 / sqrt(d_k)")
    if decay is not None and decay.size and on_host(decay) and (largest := float(decay.real.max())) > 1:
        expected = "at most 0 (values up to 1 pass, for numerical differences)"
        raise value_error(op, "decay", expected, largest, "it is the logarithm of a share; did you forget a minus?")


def check_grads(op: str, dy: Any, cache: LinearAttentionCache, dstate_end: Any) -> tuple[np.ndarray, np.ndarray]:
    """Check the gradients that enter a backward, and return them in groups; without dstate_end, dS is zeros."""
    q, k, v, *_ = cache.inputs
    require_cotangent(op, "dy", dy, (*q.shape[:-1], v.shape[-1]), q.dtype)
    dstate_end = np.zeros_like(cache.state) if dstate_end is None else dstate_end
    require_cotangent(op, "dstate_end", dstate_end, cache.state.shape, cache.state.dtype)
    dy = dy.reshape(*k.shape[:-2], q.size // max(k.size, 1), *dy.shape[-2:])  # (..., H_kv, G, T, d_v)
    return dy, dstate_end[..., None, :, :]
