"""Chapter 18. The feed-forward network: what each position does on its own

Attention mixes positions; between two such mixings every position is changed by itself, by the same small network:

    FFN(x)    = f(x w_1 + b_1) w_2 + b_2                      f = relu, gelu or silu
    SwiGLU(x) = (silu(x w_gate + b_gate) * (x w_1 + b_1)) w_2 + b_2

The hidden width d_ff is usually 4 d_model; about two thirds of a transformer's matrix weights are here.
In the gated form one half of the hidden layer says what, the other how much of it may pass. Its backward is the
product rule; for h = g * u with g = silu(a):

    dg = dh * u      du = dh * g      da = silu'(a) * dg

and x, which entered twice, collects both branches: dx = da w_gateᵀ + du w_1ᵀ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.layer import Layer, Parameters, glorot, normal
from numpy_attention.ops.activations import gelu, gelu_backward, relu, relu_backward, silu, silu_backward
from numpy_attention.ops.dropout import dropout, dropout_backward
from numpy_attention.ops.linear import linear, linear_backward

ACTIVATIONS = ("relu", "gelu", "gelu_exact", "silu", "swiglu")


class FeedForwardCache(NamedTuple):
    """What backward needs, in the order of the forward; `gate` and `up` are None without a gate."""

    linear_1: Any
    linear_gate: Any
    activation: Any
    gate: np.ndarray | None  # silu(x w_gate + b_gate)
    up: np.ndarray | None  # x w_1 + b_1
    dropout: Any
    linear_2: Any


class FeedForward(Layer):
    """y = f(x w_1 + b_1) w_2 + b_2, or with activation "swiglu" the gated form of the chapter's head.

    `activation` is one of "relu", "gelu" (tanh form), "gelu_exact" (erf), "silu", "swiglu". Dropout falls on the
    hidden layer.

    Shapes: x (..., d_model) -> y (..., d_model).
    Source: Vaswani et al., "Attention Is All You Need", 2017, eq. 2; Shazeer, "GLU Variants Improve Transformer",
    2020, eq. 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        rng: np.random.Generator | None,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        dtype: Any = np.float32,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"FeedForward: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.activation = activation
        self.dropout = dropout
        self.w_1 = normal(rng, (d_model, d_ff), glorot(d_model, d_ff), dtype)
        self.b_1 = np.zeros(d_ff, dtype) if bias else None
        self.w_2 = normal(rng, (d_ff, d_model), glorot(d_ff, d_model), dtype)
        self.b_2 = np.zeros(d_model, dtype) if bias else None
        gated = activation == "swiglu"
        self.w_gate = normal(rng, (d_model, d_ff), glorot(d_model, d_ff), dtype) if gated else None
        self.b_gate = np.zeros(d_ff, dtype) if gated and bias else None

    def forward(
        self, x: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, FeedForwardCache]:
        up, linear_1 = linear(x, self.w_1, self.b_1)  # (..., d_ff)
        if self.w_gate is None:
            h, activation = _activate(self.activation, up)  # (..., d_ff)
            linear_gate = gate = None
        else:
            a, linear_gate = linear(x, self.w_gate, self.b_gate)  # (..., d_ff)
            gate, activation = silu(a)
            h = gate * up  # (..., d_ff)
        h, dropped = dropout(h, self.dropout if training else 0.0, rng)
        y, linear_2 = linear(h, self.w_2, self.b_2)  # (..., d_model)
        kept_up = None if gate is None else up  # only the product rule needs it
        return y, FeedForwardCache(linear_1, linear_gate, activation, gate, kept_up, dropped, linear_2)

    def backward(self, dy: np.ndarray, cache: FeedForwardCache) -> tuple[np.ndarray, Parameters]:
        grads: dict[str, Any] = {}
        # y = h @ w_2 + b_2
        dh, grads["w_2"], grads["b_2"] = linear_backward(dy, cache.linear_2)
        # h = dropout(h)
        dh = dropout_backward(dh, cache.dropout)
        if cache.gate is None:
            # h = f(up)
            dup = _activate_backward(self.activation, dh, cache.activation)
            # up = x @ w_1 + b_1
            dx, grads["w_1"], grads["b_1"] = linear_backward(dup, cache.linear_1)
        else:
            # h = gate * up
            dgate = dh * cache.up
            dup = dh * cache.gate
            # gate = silu(a)
            da = silu_backward(dgate, cache.activation)
            # a = x @ w_gate + b_gate
            dx, grads["w_gate"], grads["b_gate"] = linear_backward(da, cache.linear_gate)
            # up = x @ w_1 + b_1, the second use of x
            dx_up, grads["w_1"], grads["b_1"] = linear_backward(dup, cache.linear_1)
            dx += dx_up
        return dx, {name: g for name, g in grads.items() if g is not None}  # without the biases that are off


def _activate(name: str, x: np.ndarray) -> tuple[np.ndarray, Any]:
    if name == "relu":
        return relu(x)
    if name == "silu":
        return silu(x)
    return gelu(x, approximate="none" if name == "gelu_exact" else "tanh")


def _activate_backward(name: str, dy: np.ndarray, cache: Any) -> np.ndarray:
    if name == "relu":
        return relu_backward(dy, cache)
    if name == "silu":
        return silu_backward(dy, cache)
    return gelu_backward(dy, cache)
