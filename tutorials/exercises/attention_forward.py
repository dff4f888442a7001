"""Exercise: attention from scratch

    scores  = q k^T / sqrt(d_k)      (..., T_q, T_k)      -inf where the mask is False
    weights = softmax(scores)        row by row           a row is 0 if the mask hides all keys of its query
    y       = weights v              (..., T_q, d_v)

Write attention(q, k, v, mask), which returns y and weights. If mask[..., i, j] is False, key j is hidden from query i.
You write only the forward here. The exercise attention.py is about the gradients.

Scores can be as large as 1000, but exp(1000) overflows. If q, k and v are float32, the results must be float32 too.

    python -m numpy_attention grade tutorials/exercises/attention_forward.py            check your function
    python -m numpy_attention grade tutorials/exercises/attention_forward.py --hint 1   the first of three hints
"""

import numpy as np


def attention(q, k, v, mask=None):
    """Attention of each query to all keys.

    q (..., T_q, d_k), k (..., T_k, d_k), v (..., T_k, d_v); mask (..., T_q, T_k) of True and False, or None.
    Returns y (..., T_q, d_v) and weights (..., T_q, T_k).
    """
    raise NotImplementedError
