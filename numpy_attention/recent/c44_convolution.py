"""Chapter 44. A short convolution over time

A token of Chapter 42 writes one key and one value into the state, and both come from this token alone. But to continue
"a b ... a" with "b", the model must store the value b with the key a, and a is the token before b. So many models with
such a state first mix each key, query and value with those of the few tokens before. A **causal convolution** does this
for each column (channel) separately, with n weights for each channel; n is often 4. First it puts n - 1 rows in front
of x, the **state**: zeros, or the last n - 1 inputs of the call before:

    padded = [state, x]                   (n - 1 + T, C)
    y_t = b + sum_j w_j padded_{t+j}      j = 0 ... n - 1; w_{n-1} belongs to x_t
    state_end = the last n - 1 rows of padded, for the next call

Backward: the sum has one product for each j, and both factors need a gradient:

    dpadded_{t+j} += w_j dy_t        dw_j = sum_t dy_t padded_{t+j}        db = sum_t dy_t

The first n - 1 rows of dpadded are dstate, the other rows are dx.

Three things that are easy to get wrong. The output looks back, so the gradient looks ahead: dx_t is a sum over dy_t to
dy_{t+n-1}. The last rows of padded are used twice, in y and in state_end: if the next call returns a gradient for its
state, `dstate_end`, it is added to these rows. And if x has fewer than n - 1 rows, state_end contains rows of the old
state, so a part of dstate_end goes on into dstate.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent
from numpy_attention.ops.c01a_sums import sum_to_shape
from numpy_attention.shapes import check_shapes

SHAPES = "x: ... T C, w: C n, b?: C, state?: ... m C; n >= 1; n = m+1"
FIXES = {
    "w": "each channel has n weights", "b": "one number for each channel",
    "state": "pass the last cache.state, (..., n - 1, C)",
}


class CausalConvolutionCache(NamedTuple):
    """The padded input and the weights; `state` holds the last n - 1 inputs, for the next call."""

    padded: np.ndarray  # (..., n - 1 + T, C)
    w: np.ndarray  # (C, n)
    state: np.ndarray  # (..., n - 1, C)
    with_bias: bool
    with_state: bool


def causal_convolution(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, state: np.ndarray | None = None
) -> tuple[np.ndarray, CausalConvolutionCache]:
    """Mix each token with the n - 1 tokens before it, each channel separately: y_t = b + sum_j w_j x_{t-n+1+j}.

    Shapes: x (..., T, C), w (C, n), b (C,), state (..., n - 1, C) -> y as x. `cache.state` is the next call's state.

    Raises: ValueError when shapes do not fit; TypeError for arguments that are not arrays of floats of one dtype.

    Source: Gu, Dao, Mamba (2023); for q, k and v: Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024).

    >>> x, w = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0, 1.0]])
    >>> causal_convolution(x, w)[0].tolist()  # 10 times the token before, plus the token
    [[1.0], [12.0], [23.0]]
    """
    check_shapes("causal_convolution", SHAPES, fixes=FIXES, x=x, w=w, b=b, state=state)
    *lead, T, C = x.shape
    n = w.shape[1]
    before = np.zeros_like(x, shape=(*lead, n - 1, C)) if state is None else state
    padded = np.concatenate([before, x], axis=-2)  # (..., n - 1 + T, C)
    y = np.zeros_like(x)
    for j in range(n):
        y += w[:, j] * padded[..., j : j + T, :]
    if b is not None:
        y += b
    cache = CausalConvolutionCache(padded, w, padded[..., T:, :].copy(), b is not None, state is not None)
    return y, cache


def causal_convolution_backward(
    dy: np.ndarray, cache: CausalConvolutionCache, dstate_end: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Gradients of `causal_convolution`: dx, dw, db, dstate, with None for an argument that was None.

    `dstate_end` is the gradient of `cache.state`, if a next call returns one.
    """
    padded, w, state, with_bias, with_state = cache
    n, dtype = w.shape[1], w.dtype
    T = padded.shape[-2] - n + 1
    require_cotangent("causal_convolution_backward", "dy", dy, padded[..., n - 1 :, :].shape, dtype)

    dpadded, dw = np.zeros_like(padded), np.zeros_like(w)
    for j in range(n):
        # y += w_j * padded[j : j + T]
        dpadded[..., j : j + T, :] += w[:, j] * dy
        dw[:, j] = sum_to_shape(dy * padded[..., j : j + T, :], w.shape[:1])
    # y += b
    db = sum_to_shape(dy, w.shape[:1]) if with_bias else None
    if dstate_end is not None:
        # state_end = padded[T:]
        require_cotangent("causal_convolution_backward", "dstate_end", dstate_end, state.shape, dtype)
        dpadded[..., T:, :] += dstate_end
    # padded = [state, x]
    dstate, dx = dpadded[..., : n - 1, :], dpadded[..., n - 1 :, :]
    return dx, dw, db, dstate if with_state else None
