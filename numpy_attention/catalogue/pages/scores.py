"""Scores and outputs, tamed (Chapter 6, continued): softcap, a sink, a gate."""

import math
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, op_entry, times
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.ops.scores import SinkCache, sigmoid_gate_backward, softcap_backward, softmax_with_sink_backward
from numpy_attention.ops.sums import sum_to_shape

CHAPTER = 6

SINK = "scores: B H T_q T_k, sink: H"
ONE = "scores: H T_q T_k, sink: H"
ENTRIES = (
    op_entry("softcap", "x: ... d", options={"cap": 2.0}, wrong="x:int64 x[list]"),
    op_entry("softcap", "x: B d", "scores far above the cap", options={"cap": 0.3}, prepare=times("x", 10.0)),
    op_entry("softmax_with_sink", SINK, at_least={"T_k": 2}, wrong="sink+0 sink:float32 sink[more] scores[list]"),
    op_entry("softmax_with_sink", ONE, "no batch", wrong="scores[row] scores+0"),
    op_entry("softmax_with_sink", "scores: A B H T_q T_k, sink: H", "two leading axes"),
    op_entry("softmax_with_sink", SINK, "large sinks", prepare=times("sink", 20.0)),
    op_entry("sigmoid_gate", "x: B H T d_v, gate: B H T d_v", "one gate for each element", wrong="gate+3 gate[more]"),
    op_entry("sigmoid_gate", "x: B H T d_v, gate: B H T 1", "one gate for each head", at_least={"d_v": 2},
             wrong="gate+2 gate:float32"),
    op_entry("sigmoid_gate", "x: B T d, gate: d", "one gate for each column", wrong="x:int64 gate[list]"),
    op_entry("sigmoid_gate", "x: ... d, gate: ... d", "large gates", prepare=times("gate", 20.0)),
)


def plain_softcap(x: Array, cap: float) -> Array:
    """Computes cap tanh(x / cap) for each number."""
    return np.reshape([cap * math.tanh(t / cap) for t in x.reshape(-1).tolist()], x.shape)


def plain_softmax_with_sink(scores: Array, sink: Array) -> Array:
    """Subtracts the logarithm of the sum of each row, including the sink, from the scores."""
    total = np.logaddexp(np.logaddexp.reduce(scores, axis=-1, keepdims=True), sink[:, None, None])
    return np.exp(scores - total)


def plain_sigmoid_gate(x: Array, gate: Array) -> Array:
    """Uses the identity sigmoid(t) = (1 + tanh(t / 2)) / 2."""
    return x * (1.0 + np.tanh(gate / 2.0)) / 2.0


PLAIN = {"softcap": plain_softcap, "softmax_with_sink": plain_softmax_with_sink, "sigmoid_gate": plain_sigmoid_gate}


@backward_of("softcap", diagnosis="the derivative with respect to `x_cap` is left out")
def cap_without_a_slope(dy: Array, cache: Array) -> Array:
    """The gradient passes the cap unchanged: the factor 1 / cosh^2 is missing.

    Hides: right for scores much smaller than the cap, as before training.
    """
    return dy.copy()


@backward_of("softcap", diagnosis="the derivative is taken at `np.tanh(x_cap)`")
def slope_at_the_capped_score(dy: Array, cache: Array) -> Array:
    """The slope is computed from the result y instead of x: 1 / cosh^2(y / cap) instead of 1 / cosh^2(x / cap).

    Hides: the sign is right, and for small scores the factor is almost right.
    """
    t = np.sqrt(1.0 - cache)  # |y / cap|
    return softcap_backward(dy, (1.0 - np.tanh(t) ** 2).astype(dy.dtype))


@backward_of("softmax_with_sink", diagnosis="dsink: the sign is wrong")
def sink_without_its_minus(dy: Array, cache: SinkCache) -> Any:
    """The minus of dsink is missing, so the sink grows when it should shrink.

    Hides: dscores is right, and the loss still falls, because all other weights learn.
    """
    dscores, dsink = softmax_with_sink_backward(dy, cache)
    return dscores, -dsink


@backward_of("softmax_with_sink", diagnosis="divided by another sum than in the forward")
def weights_normalized_in_the_backward(dy: Array, cache: SinkCache) -> Any:
    """The backward uses weights that sum to one, but the weights of the forward sum to 1 - p.

    Hides: right for a sink far below all scores.
    """
    weights = cache.weights / np.maximum(1.0 - cache.sink_weight, np.finfo(dy.dtype).tiny)
    return softmax_with_sink_backward(dy, SinkCache(weights.astype(dy.dtype), cache.sink_weight))


@backward_of("sigmoid_gate", diagnosis="without the factor y (1 - y)")
def gate_without_its_slope(dy: Array, cache: tuple[Array, Array]) -> Any:
    """dgate = dy x: the slope of the sigmoid, g (1 - g), is missing.

    Hides: the sign is right, and for gates near 0 the factor is nearly constant, 1/4.
    """
    x, gate = cache
    return sigmoid_gate_backward(dy, cache)[0], sum_to_shape(dy * x, gate.shape)


@backward_of("sigmoid_gate", diagnosis="is a sum over this axis, or over groups along it, missing")
def gate_of_the_first_column(dy: Array, cache: tuple[Array, Array]) -> Any:
    """A head has one gate for all columns, but dgate is the gradient of the first column instead of their sum.

    Hides: right for one gate for each element.
    """
    x, gate = cache
    dx, dgate = sigmoid_gate_backward(dy, cache)
    if gate.shape != x.shape:
        _, dgate = sigmoid_gate_backward(dy * (np.arange(dy.shape[-1]) == 0), cache)
    return dx, dgate


EXERCISES = (
    Exercise("sink", 22, (Try("softmax_with_sink", ONE, "one sequence"), Try("softmax_with_sink", SINK, "a batch"))),
)
