"""Chapter 46. Scores and outputs, tamed

Three small functions that many models since 2023 add to attention. Each one limits what a head can do.

**Softcap.** A very large score gives almost all weight to one key, and then almost no gradient passes the softmax
(Chapter 6). Softcap keeps every score between -cap and cap. Scores much smaller than cap hardly change:

    y = cap tanh(x / cap)        dx = dy / cosh^2(x / cap), since tanh' = 1 - tanh^2 = 1 / cosh^2

For large x, 1 - tanh^2 subtracts two almost equal numbers; 1 / cosh^2 loses no digits.

**Sink.** The weights of a query sum to one, so a head must always attend, even if no key is useful. A sink is one more
column of scores. The column takes weight but has no value, so it adds nothing to the output. Each head learns one
number s, the score of its sink for every query:

    weights_j = exp(x_j) / Z        p = exp(s) / Z        Z = exp(s) + sum_k exp(x_k)

The weights now sum to 1 - p, and a large s turns the head off. The backward is Chapter 3 for the longer row. The output
does not use p, so the price of p (Chapter 3: its gradient) is 0. So the average price is a sum over the keys only:

    average = sum_j dweights_j weights_j + 0 p
    dx_j = weights_j (dweights_j - average)        ds = p (0 - average), summed over all queries of the head

Three things that are easy to get wrong. The minus of ds: a positive average price means that more weight raises the
loss, so a larger s lowers the loss. The weights: the backward needs the weights that sum to 1 - p. The sum: every query
of every sequence uses s. If all keys of a query are hidden, its weights and average are 0, so it adds nothing to ds.

**Gate.** The gate multiplies the output of a head by numbers between 0 and 1, one for each head or each element:

    y = x g, g = 1 / (1 + exp(-gate))        dx = dy g        dgate = dy x g (1 - g), since g' = g (1 - g)

If the gate is repeated along an axis of x, dgate is summed over this axis.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_number
from numpy_attention.ops.c01a_sums import dot_in_rows, sum_to_shape
from numpy_attention.ops.c03_softmax import SoftmaxCache, softmax, softmax_backward
from numpy_attention.shapes import check_shapes

SHAPES = {
    "softcap": "x: ...",
    "softmax_with_sink": "scores: ... H T_q T_k, sink: H",
    "sigmoid_gate": "x: ..., gate: to ...",
}

CAPS: dict[str, Any] = {"at_least": 1e-30, "at_most": 1e30}  # other caps are 0 or inf in float32


class SinkCache(NamedTuple):
    """The weights of the keys and the weight of the sink; together each row sums to one."""

    weights: np.ndarray  # (..., H, T_q, T_k)
    sink_weight: np.ndarray  # (..., H, T_q, 1)


def softcap(x: np.ndarray, cap: float) -> tuple[np.ndarray, np.ndarray]:
    """Keep every number between -cap and cap; numbers much smaller than cap hardly change.

    Formula: y = cap tanh(x / cap)

    Shapes: x of any shape -> y of the same shape

    Raises: ValueError for a cap below 1e-30 or above 1e30; TypeError when x is not an array of floats.

    Source: Bello, Pham, Le, Norouzi, Bengio, Neural Combinatorial Optimization with Reinforcement Learning (2016);
    in every layer of a language model: Gemma Team, Gemma 2 (2024), section 2.

    >>> softcap(np.array([-1000.0, 1.0, 60.0]), cap=50.0)[0].round(2)
    array([-50.  ,   1.  ,  41.68])
    """
    check_shapes("softcap", SHAPES["softcap"], x=x)
    cap = require_number("softcap", "cap", cap, **CAPS, fix="None turns softcap off")
    with np.errstate(over="ignore"):  # cosh(1000) overflows to inf, and so may x / cap; 1 / inf = 0 is correct
        x_cap = x / cap
        slope = 1.0 / np.cosh(x_cap) ** 2
    return cap * np.tanh(x_cap), slope


def softcap_backward(dy: np.ndarray, cache: np.ndarray) -> np.ndarray:
    """Gradient of `softcap`: dx = dy / cosh^2(x / cap); the cache is the slope 1 / cosh^2(x / cap).

    Shapes: dy as y -> dx as x
    """
    require_cotangent("softcap_backward", "dy", dy, cache.shape, cache.dtype)
    # y = cap * tanh(x / cap)
    return dy * cache


def softmax_with_sink(scores: np.ndarray, sink: np.ndarray) -> tuple[np.ndarray, SinkCache]:
    """A softmax whose rows sum to less than one, because one more column, the sink, takes a part of the weight.

    Formula: weights_j = exp(scores_j) / (exp(sink) + sum_k exp(scores_k)); a row of -inf gives zeros.

    Shapes: scores (..., H, T_q, T_k), sink (H,), one number for each head -> weights (..., H, T_q, T_k)

    Units: scores and sink in nats.

    Raises: ValueError when sink is not (H,); TypeError when the arrays are not floats of one dtype.

    Source: OpenAI, gpt-oss-120b & gpt-oss-20b Model Card (2025), architecture; the name: Xiao et al.,
    Efficient Streaming Language Models with Attention Sinks (2023).

    >>> softmax_with_sink(np.zeros((1, 1, 3)), np.zeros(1))[0]  # four equal scores, one is the sink's
    array([[[0.25, 0.25, 0.25]]])
    """
    fixes = {"scores": "with a single head add an axis: scores[None]", "sink": "one number for each head"}
    check_shapes("softmax_with_sink", SHAPES["softmax_with_sink"], fixes=fixes, scores=scores, sink=sink)
    column = np.broadcast_to(sink[:, None, None], (*scores.shape[:-1], 1))
    y, _ = softmax(np.concatenate([scores, column], axis=-1))  # (..., H, T_q, T_k + 1)
    return y[..., :-1], SinkCache(y[..., :-1], y[..., -1:])


def softmax_with_sink_backward(dy: np.ndarray, cache: SinkCache) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `softmax_with_sink`: dscores as in Chapter 3, dsink = -sum(p * average) with the sink's weight p.

    Shapes: dy (..., H, T_q, T_k) -> dscores (..., H, T_q, T_k), dsink (H,)
    """
    weights, sink_weight = cache
    require_cotangent("softmax_with_sink_backward", "dy", dy, weights.shape, weights.dtype)
    # weights, sink_weight = softmax([scores, sink])
    return softmax_backward(dy, SoftmaxCache(weights, axis=-1)), sink_gradient(dy, weights, sink_weight)


def sink_gradient(dweights: np.ndarray, weights: np.ndarray, sink_weight: np.ndarray) -> np.ndarray:
    """The gradient of the sink alone: -sum(p * average) over the queries and the leading axes.

    Shapes: dweights, weights (..., H, T_q, T_k), sink_weight (..., H, T_q, 1) -> dsink (H,)
    """
    average = dot_in_rows(dweights, weights)  # (..., H, T_q, 1)
    return sum_to_shape(-sink_weight * average, (weights.shape[-3], 1, 1)).reshape(-1)


def sigmoid_gate(x: np.ndarray, gate: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Multiply x by numbers between 0 and 1, the sigmoid of the gate.

    Formula: y = x g, g = 1 / (1 + exp(-gate))

    Shapes: x of any shape, gate broadcastable to x -> y as x. In attention x is (B, H, T, d_v); the gate is
    (B, H, T, 1), one number for each head, or (B, H, T, d_v), one for each element.

    Raises: ValueError when gate is not broadcastable to x; TypeError when the arrays are not floats of one dtype.

    Source: Qiu et al., Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free
    (2025), section 2.

    >>> sigmoid_gate(np.array([2.0, 2.0, 2.0]), np.array([-1000.0, 0.0, 1000.0]))[0]
    array([0., 1., 2.])
    """
    fixes = {"gate": "one gate for each head is (B, H, T, 1)"}
    check_shapes("sigmoid_gate", SHAPES["sigmoid_gate"], fixes=fixes, x=x, gate=gate)
    return x * _sigmoid(gate), (x, gate)


def sigmoid_gate_backward(dy: np.ndarray, cache: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `sigmoid_gate`: dx = dy g, dgate = sum(dy x g (1 - g)) over the axes along which gate is repeated.

    Shapes: dy as y -> dx as x, dgate as gate
    """
    x, gate = cache
    require_cotangent("sigmoid_gate_backward", "dy", dy, x.shape, x.dtype)
    # g = sigmoid(gate)
    g, one_minus_g = _sigmoid(gate), _sigmoid(-gate)  # 1.0 - g would lose digits if g is near 1
    # y = x * g
    dg = sum_to_shape(dy * x, gate.shape)
    return dy * g, dg * g * one_minus_g


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(1000) overflows to inf; 1 / inf = 0 is correct
        return 1.0 / (1.0 + np.exp(-x))
