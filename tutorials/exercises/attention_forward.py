"""Exercise: attention from scratch

    scores  = q k^T / sqrt(d_k)      (..., T_q, T_k)      -inf where the mask is False
    weights = softmax(scores)        row by row           zeros in a row whose keys are all hidden
    y       = weights v              (..., T_q, d_v)

Write attention(q, k, v, mask), which returns y and weights. This exercise has no gradient; attention.py has it.

Scores may be as large as 1000, and exp(1000) overflows. If q, k, v are float32, the results must be float32 too.

    python -m numpy_attention grade tutorials/exercises/attention_forward.py            check your function
    python -m numpy_attention grade tutorials/exercises/attention_forward.py --hint 1   three hints, one at a time
"""

import numpy as np


def attention(q, k, v, mask=None):
    """q (..., T_q, d_k), k (..., T_k, d_k), v (..., T_k, d_v), mask True = may look -> y (..., T_q, d_v), weights."""
    raise NotImplementedError
