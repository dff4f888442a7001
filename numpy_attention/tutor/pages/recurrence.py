"""Linear attention in two calls, and one step of the delta rule."""

from typing import Any

import numpy as np

from numpy_attention.errors import require_cotangent, require_float
from numpy_attention.recent.c42_recurrence import check_recurrence, linear_attention, linear_attention_backward
from numpy_attention.recent.c43_chunks import chunked_linear_attention, chunked_linear_attention_backward
from numpy_attention.tutor.entry import Array


def linear_attention_in_two_calls(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array) -> Any:
    """The first token in one call, the others in a second call, in chunks, from the state of the first call."""
    inputs: dict[str, Any] = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta}
    check_recurrence("linear_attention_in_two_calls", **inputs, state=state, scale=None)
    first: dict[str, Any] = {name: x if x is None else x[..., :1, :] for name, x in inputs.items()}
    second: dict[str, Any] = {name: x if x is None else x[..., 1:, :] for name, x in inputs.items()}
    y_1, cache_1 = linear_attention(**first, state=state)
    y_2, cache_2 = chunked_linear_attention(**second, state=cache_1.state, chunk_size=2)
    y = np.concatenate([y_1, y_2], axis=-2)
    return y, (cache_1, cache_2, y)


def linear_attention_in_two_calls_backward(dy: Array, cache: Any) -> Any:
    """The second call gives the gradient of the state to the first call."""
    cache_1, cache_2, y = cache
    require_cotangent("linear_attention_in_two_calls_backward", "dy", dy, y.shape, y.dtype)
    *second, dstate = chunked_linear_attention_backward(dy[..., 1:, :], cache_2)
    *first, dstate = linear_attention_backward(dy[..., :1, :], cache_1, dstate)
    return *(a if a is None or b is None else np.concatenate([a, b], axis=-2) for a, b in zip(first, second)), dstate


def delta_rule(S: Array, k: Array, v: Array, beta: Array) -> Any:
    """One step of the delta rule: the state after one token."""
    require_float("delta_rule", S=S, k=k, v=v, beta=beta)
    old = k @ S
    new = beta * (v - old)
    return S + k.swapaxes(-1, -2) @ new, (S, k, v, beta, old, new)


def delta_rule_backward(dS_new: Array, cache: Any) -> Any:
    """The gradients of one step, from the gradient of the state after it."""
    S, k, v, beta, old, new = cache
    require_cotangent("delta_rule_backward", "dS_new", dS_new, S.shape, S.dtype)
    # S_new = S + k^T @ new
    dk, dnew = new @ dS_new.swapaxes(-1, -2), k @ dS_new
    # new = beta * (v - old)
    dbeta, dv = (dnew * (v - old)).sum(axis=-1, keepdims=True), beta * dnew
    # old = k @ S
    return dS_new - k.swapaxes(-1, -2) @ dv, dk - dv @ S.swapaxes(-1, -2), dv, dbeta
