"""The plain forms of softcap, of the softmax with a sink, and of the gate."""

import math

import numpy as np

from numpy_attention.tutor.entry import Array


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
