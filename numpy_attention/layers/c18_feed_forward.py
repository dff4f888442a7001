"""Chapter 18. The feed-forward network: each position by itself

Attention mixes positions. Between two attentions, one small network changes every position separately:

    (B, T, d_model) --> (B, T, d_ff) --> (B, T, d_model)

    FFN(x)    = f(x w_1 + b_1) w_2 + b_2                      f = relu, gelu or silu
    SwiGLU(x) = (silu(x w_gate + b_gate) * (x w_1 + b_1)) w_2 + b_2            GEGLU: gelu in place of silu

The hidden width d_ff is usually 4 d_model; about two thirds of a transformer's matrix weights are in these networks.
SwiGLU, the gated form, multiplies two branches of width d_ff. The branch `up` is the content. The branch `gate`
decides how much of this content passes. The backward is the product rule; with a = x w_gate + b_gate, gate = silu(a),
up = x w_1 + b_1 and h = gate * up:

    dgate = dh * up      dup = dh * gate      da = silu'(a) * dgate

Both branches use x, so its gradient is a sum: dx = da w_gate^T + dup w_1^T. `project` is the product of Chapter 1
(Chapter 14, appendix).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_number, require_sizes
from numpy_attention.layers.c13_layer import Layer, Parameters, flat_gradients, glorot, normal
from numpy_attention.layers.c14a_project import Matrix, ProjectionCache, project, project_backward
from numpy_attention.ops.c05_dropout import DropoutCache, dropout, dropout_backward
from numpy_attention.ops.c10_activations import gelu, gelu_backward, relu, relu_backward, silu, silu_backward

ACTIVATIONS: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray, Any], np.ndarray]]] = {
    "relu": (relu, relu_backward),
    "gelu": (gelu, gelu_backward),
    "gelu_exact": (partial(gelu, approximate="none"), gelu_backward),
    "silu": (silu, silu_backward),
    "swiglu": (silu, silu_backward),  # the activation of the gate
    "geglu": (gelu, gelu_backward),  # the activation of the gate
}
GATED = ("swiglu", "geglu")


class GateCache(NamedTuple):
    """Both factors of the gated form: the product rule needs them."""

    linear: ProjectionCache
    gate: np.ndarray  # f(x w_gate + b_gate)
    up: np.ndarray  # x w_1 + b_1


class FeedForwardCache(NamedTuple):
    """What backward needs, in the order of the forward."""

    linear_1: ProjectionCache
    gated: GateCache | None  # None without a gate
    activation: Any  # a ReluCache or an ActivationCache
    dropout: DropoutCache
    linear_2: ProjectionCache


class FeedForward(Layer):
    """y = f(x w_1 + b_1) w_2 + b_2. For "swiglu" and "geglu", y is the gated form at the top of this chapter.

    `activation` is one of "relu", "gelu" (tanh form), "gelu_exact" (erf), "silu", "swiglu", "geglu" (tanh form).
    Dropout acts on the hidden layer.

    Shapes: x (..., d_model) -> y (..., d_model).

    Raises: ValueError for an unknown activation; TypeError or ValueError for sizes below 1 or a dropout outside [0, 1).

    Source: Vaswani et al., Attention Is All You Need (2017), equation 2; Shazeer, GLU Variants Improve Transformer
    (2020), equations 5 and 6.
    """

    def __init__(
        self, d_model: int, d_ff: int, rng: np.random.Generator | None, activation: str = "relu", bias: bool = True,
        dropout: float = 0.0, dtype: Any = np.float32,
    ) -> None:
        require_choice("FeedForward", "activation", activation, ACTIVATIONS)
        require_sizes("FeedForward", d_model=d_model, d_ff=d_ff)
        self.activation = activation
        self.dropout = require_number("FeedForward", "dropout", dropout, at_least=0, below=1)
        self.w_1: Matrix = normal(rng, (d_model, d_ff), glorot(d_model, d_ff), dtype)
        self.b_1 = np.zeros(d_ff, dtype) if bias else None
        self.w_2: Matrix = normal(rng, (d_ff, d_model), glorot(d_ff, d_model), dtype)
        self.b_2 = np.zeros(d_model, dtype) if bias else None
        gated = activation in GATED
        self.w_gate: Matrix | None = normal(rng, (d_model, d_ff), glorot(d_model, d_ff), dtype) if gated else None
        self.b_gate = np.zeros(d_ff, dtype) if gated and bias else None

    def forward(self, x: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, FeedForwardCache]:
        activate, _ = ACTIVATIONS[self.activation]
        up, linear_1 = project(x, self.w_1, self.b_1)  # (..., d_ff)
        gated = None
        if self.w_gate is None:
            h, activation = activate(up)  # (..., d_ff)
        else:
            a, linear_gate = project(x, self.w_gate, self.b_gate)  # (..., d_ff)
            gate, activation = activate(a)
            h = gate * up  # (..., d_ff)
            gated = GateCache(linear_gate, gate, up)
        h, dropout_cache = dropout(h, self.dropout, rng)
        y, linear_2 = project(h, self.w_2, self.b_2)  # (..., d_model)
        return y, FeedForwardCache(linear_1, gated, activation, dropout_cache, linear_2)

    def backward(self, dy: np.ndarray, cache: FeedForwardCache) -> tuple[np.ndarray, Parameters]:
        _, activate_backward = ACTIVATIONS[self.activation]
        grads: dict[str, Any] = {}
        # y = h @ w_2 + b_2
        dh, grads["w_2"], grads["b_2"] = project_backward(dy, self.w_2, cache.linear_2)
        # h = dropout(h)
        dh = dropout_backward(dh, cache.dropout)
        gated = cache.gated
        if gated is None or self.w_gate is None:
            # h = f(up)
            dup = activate_backward(dh, cache.activation)
            # up = x @ w_1 + b_1
            dx, grads["w_1"], grads["b_1"] = project_backward(dup, self.w_1, cache.linear_1)
        else:
            # h = gate * up
            dgate = dh * gated.up
            dup = dh * gated.gate
            # gate = silu(a)
            da = activate_backward(dgate, cache.activation)
            # a = x @ w_gate + b_gate
            dx, grads["w_gate"], grads["b_gate"] = project_backward(da, self.w_gate, gated.linear)
            # up = x @ w_1 + b_1, the second use of x
            dx_up, grads["w_1"], grads["b_1"] = project_backward(dup, self.w_1, cache.linear_1)
            dx += dx_up
        return dx, flat_gradients(grads)
