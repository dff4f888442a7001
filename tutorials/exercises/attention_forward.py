"""Exercise: attention from nothing

    scores  = q k^T / sqrt(d_k)      (..., T_q, T_k)      -inf where the mask is False
    weights = softmax(scores)        row by row           zeros in a row that may look at nothing
    y       = weights v              (..., T_q, d_v)

Write: attention(q, k, v, mask), which returns y and weights. There is no gradient here; that is attention.py.

Scores may be as large as a thousand, where exp overflows; and float32 stays float32.

    python -m numpy_attention grade tutorials/exercises/attention_forward.py            what is right already
    python -m numpy_attention grade tutorials/exercises/attention_forward.py --hint 1   three hints, one at a time
"""

import numpy as np


def attention(q, k, v, mask=None):
    """q (..., T_q, d_k), k (..., T_k, d_k), v (..., T_k, d_v), mask True = may look -> y (..., T_q, d_v), weights."""
    raise NotImplementedError
