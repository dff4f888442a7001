"""Exercise: the gradient of the sink

    weights_j = exp(scores_j) / Z        p = exp(sink) / Z        Z = exp(sink) + sum_k exp(scores_k)

Given: the forward. Write: softmax_with_sink_backward(dy, cache), which returns dscores and dsink. dy is the gradient of
the weights.

Each head has one sink for all queries of all sequences. The sink takes the weight p from every row. The output of
attention does not use p.

    python -m numpy_attention grade tutorials/exercises/sink.py            check your function
    python -m numpy_attention grade tutorials/exercises/sink.py --hint 1   the first of three hints
"""

import numpy as np


def softmax_with_sink(scores, sink):
    """scores (..., H, T_q, T_k), sink (H,) -> weights with the shape of scores."""
    s = sink[:, None, None]  # (H, 1, 1)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), s)  # (..., H, T_q, 1)
    e, e_sink = np.exp(scores - largest), np.exp(s - largest)
    total = e.sum(axis=-1, keepdims=True) + e_sink
    weights, p = e / total, e_sink / total  # (..., H, T_q, T_k) and (..., H, T_q, 1)
    return weights, (weights, p)


def softmax_with_sink_backward(dy, cache):
    """dy, with the shape of weights -> dscores with the shape of scores, dsink (H,)."""
    weights, p = cache
    raise NotImplementedError
