"""Exercise: attention with a KV cache

    q = x w_q                               n rows: x contains only the n new tokens
    k = past_k, and then the rows x w_k     n_stored + n rows
    v = past_v, and then the rows x w_v     n_stored + n rows
    y = attention(q, k, v)                  no token sees a later token

Write next_outputs(x, past_k, past_v, w_q, w_k, w_v). It returns three arrays: y, k and v. The arrays
past_k and past_v contain the stored rows. In k and v, the new rows come after the stored rows.

There may be one new token, or several new tokens (a prompt). Divide the scores by sqrt(d_k).

    python -m numpy_attention grade tutorials/exercises/kv_cache.py            check your function
    python -m numpy_attention grade tutorials/exercises/kv_cache.py --hint 1   the first of three hints
"""

import numpy as np


def next_outputs(x, past_k, past_v, w_q, w_k, w_v):
    """x (n, d), past_k (n_stored, d_k), past_v (n_stored, d_v) -> y (n, d_v), k and v with n_stored + n rows."""
    raise NotImplementedError
