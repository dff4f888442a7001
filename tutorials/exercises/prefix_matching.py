"""Exercise: which heads look at the token after the earlier copy

In "the cat sat. the cat" the token "the" comes twice, and after the first "the" came "cat". A head that looks from the
second "the" at the first "cat", the token after the earlier copy, can predict the next token. It is an induction head.
To find induction heads, take N random tokens, and repeat them once:

    position      0   1   2   3   4   5       N = 3
    token         a   b   c   a   b   c
    query t = 4               its token b is also at t - N = 1; the token after it, c, is at t - N + 1 = 2

Write prefix_matching(weights, N). For each head it returns the mean weight of the queries of the second half,
t = N .. 2N - 1, on key t - N + 1. A head that looks only at these keys has 1; equal weights on all keys give
about 1 / t.

    python -m numpy_attention grade tutorials/exercises/prefix_matching.py            check your function
    python -m numpy_attention grade tutorials/exercises/prefix_matching.py --hint 1   three hints, one at a time
"""

import numpy as np


def prefix_matching(weights, N):
    """Weights (H, 2N, 2N), queries by keys -> (H,)."""
    raise NotImplementedError
