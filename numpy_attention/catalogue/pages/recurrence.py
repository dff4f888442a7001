"""Attention as a recurrence (Chapters 42 and 43): four rules, token by token, in chunks, in two calls, and one step."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, op_entry
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.errors import require_cotangent, require_float
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.recent.chunks import chunked_linear_attention, chunked_linear_attention_backward
from numpy_attention.recent.recurrence import (
    LinearAttentionCache,
    check_recurrence,
    linear_attention,
    linear_attention_backward,
)

CHAPTER = 42

QKV = "q: B H T d_k, k: B H T d_k, v: B H T d_v"
GROUPED = "q: B H_q T d_k, k: B H T d_k, v: B H T d_v, decay: B H T 1, beta: B H T 1, state: B H d_k d_v; H_q = G*H"
WRONG = "k+2 k-1 v+2 k.T q:float32 q:int64 q[list]"
RULES = (
    (QKV, "linear rule", WRONG),
    (f"{QKV}, decay: B H T 1", "gated rule", "decay-2 decay+2 decay:float32"),
    (f"{QKV}, decay: H 1 d_k, state: B H d_k d_v", "a constant decay for each row of the state", "state-1 state.T"),
    (f"{QKV}, beta: B H T 1", "delta rule", "beta-1 beta+1 beta:int64"),
    (f"{QKV}, decay: B H T d_k, beta: B 1 T 1", "gated delta rule, one beta for all heads", ""),
    (GROUPED, "grouped heads, all arguments", "k+1 q+1 state:float32"),
    ("q: T d_k, k: T d_k, v: T d_v, beta: T 1", "no leading axes", ""),
)


def _negative(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {**inputs, **({"decay": -np.abs(inputs["decay"])} if "decay" in inputs else {})}


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


def linear_attention_in_two_calls_backward(dy: Array, cache: Any, carried: bool = True) -> Any:
    """The second call gives the gradient of the state to the first call."""
    cache_1, cache_2, y = cache
    require_cotangent("linear_attention_in_two_calls_backward", "dy", dy, y.shape, y.dtype)
    *second, dstate = chunked_linear_attention_backward(dy[..., 1:, :], cache_2)
    *first, dstate = linear_attention_backward(dy[..., :1, :], cache_1, dstate if carried else None)
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


ONE_STEP = "S: d_k d_v, k: 1 d_k, v: 1 d_v, beta: 1 1"
STEPS = "S: B H d_k d_v, k: B H 1 d_k, v: B H 1 d_v, beta: B H 1 1"
TWO_CALLS = "linear_attention_in_two_calls"
ENTRIES = (
    *(op_entry("linear_attention", *rule[:2], prepare=_negative, wrong=rule[2]) for rule in RULES),
    op_entry("linear_attention", f"{QKV}, decay: B 1 T 1", "a scale", options={"scale": 0.7}, prepare=_negative),
    *(
        op_entry("chunked_linear_attention", spec, variant, options={"chunk_size": 3}, prepare=_negative, wrong=wrong)
        for spec, variant, wrong in RULES
    ),
    op_entry("chunked_linear_attention", GROUPED, "one chunk, a scale", options={"scale": 0.7}, prepare=_negative),
    Entry(
        TWO_CALLS, TWO_CALLS, f"{QKV}, decay: B H T d_k, beta: B H T 1, state: B H d_k d_v",
        linear_attention_in_two_calls, linear_attention_in_two_calls_backward, prepare=_negative, at_least={"T": 2},
    ),
    Entry("delta_rule", "delta_rule", ONE_STEP, delta_rule, delta_rule_backward),
)


def plain_linear_attention(
    q: Array, k: Array, v: Array, decay: Array | None = None, beta: Array | None = None, state: Array | None = None,
    scale: float | None = None, chunk_size: int = 0,
) -> Array:
    """One query head at a time: S = (I - beta k^T k) diag(exp(decay)) S + beta k^T v."""
    d_k, y = k.shape[-1], np.zeros((*q.shape[:-1], v.shape[-1]))
    decays = np.broadcast_to(np.zeros(1) if decay is None else decay, k.shape)
    betas = np.broadcast_to(np.zeros(1) if beta is None else beta, (*k.shape[:-1], 1))
    groups = 1 if k.ndim == 2 else q.shape[-3] // k.shape[-3]
    for place in np.ndindex(q.shape[:-2]):
        head = (*place[:-1], place[-1] // groups) if place else ()
        S = np.zeros((d_k, v.shape[-1])) if state is None else state[head]
        for t in range(k.shape[-2]):
            key, b = k[head][t], betas[head][t]
            turn = np.eye(d_k) - b * np.outer(key, key)
            S = turn @ np.diag(np.exp(decays[head][t])) @ S + (1 if beta is None else b) * np.outer(key, v[head][t])
            y[place][t] = q[place][t] @ S * (d_k**-0.5 if scale is None else scale)
    return y


PLAIN = {"linear_attention": plain_linear_attention, "chunked_linear_attention": plain_linear_attention}


@backward_of("linear_attention", diagnosis="is left out")
def decay_of_the_rows_before(dy: Array, cache: LinearAttentionCache) -> Any:
    """ddecay is computed from the rows before the decay, so the factor exp(decay) is missing.

    Hides: the sign is right, and for decays near zero, as in trained models, all numbers are nearly right.
    """
    *grads, ddecay, dbeta, dstate = linear_attention_backward(dy, cache)
    return *grads, None if cache.inputs[3] is None else ddecay / np.exp(cache.inputs[3]), dbeta, dstate


@backward_of("linear_attention", diagnosis="along axis 1 of dy: is a sum over this axis")
def only_the_first_head_reads(dy: Array, cache: LinearAttentionCache) -> Any:
    """Several query heads read the same state, but the state gets a gradient from the first of these heads only.

    Hides: right if every query head has a state.
    """
    dq, *others = linear_attention_backward(dy, cache)
    q, k, *_ = cache.inputs
    if q.shape != k.shape:
        first = np.arange(q.shape[-3]) % (q.shape[-3] // k.shape[-3]) == 0
        others = list(linear_attention_backward(dy * first[:, None, None], cache)[1:])
    return dq, *others


@backward_of(TWO_CALLS, diagnosis="does a loop or a slice begin one place late")
def gradient_of_the_state_not_carried(dy: Array, cache: Any) -> Any:
    """The gradient of the state between two calls is lost, so the first call gets no gradient from the second call.

    Hides: right for one call; in two calls, the gradients of the second call are right.
    """
    return linear_attention_in_two_calls_backward(dy, cache, carried=False)


@backward_of("delta_rule", diagnosis="the path through `new` is missing")
def old_value_taken_as_a_constant(dS_new: Array, cache: Any) -> Any:
    """The old value k S depends on the key and on the state, but the backward takes it as a constant.

    Hides: dv and dbeta are right, and the loss still falls.
    """
    _, _, dv, dbeta = delta_rule_backward(dS_new, cache)
    return dS_new.copy(), cache[-1] @ dS_new.swapaxes(-1, -2), dv, dbeta


@backward_of("delta_rule")
def beta_without_the_old_value(dS_new: Array, cache: Any) -> Any:
    """dbeta is the dot product of dnew with v, but beta multiplies the difference v - old.

    Hides: right while the state is zero, as at the first token.
    """
    _, k, v, *_ = cache
    return *delta_rule_backward(dS_new, cache)[:3], ((k @ dS_new) * v).sum(axis=-1, keepdims=True)


OURS = {"delta_rule": delta_rule, "delta_rule_backward": delta_rule_backward}
EXERCISES = (
    Exercise("delta_rule", 23, (Try("delta_rule", ONE_STEP, "one head"), Try("delta_rule", STEPS, "a batch of heads"))),
)
