"""Exercise: which heads look at the token after the earlier copy

In "the cat sat. the cat" the token "the" occurs twice, and "cat" comes after the first "the". We call the first "the"
the earlier copy of the second "the". The first "cat" is the token after the earlier copy. Suppose that the query is
the second "the", and a head looks at the first "cat". Then this head can predict the next token, "cat". It is called
an induction head. To find induction heads, take N random tokens, and repeat them once:

    position      0   1   2   3   4   5       N = 3
    token         a   b   c   a   b   c
    query t = 4               its token b is also at t - N = 1; the next token is c, at t - N + 1 = 2

Write prefix_matching(weights, N), which returns one score for each head. Each query t of the second half (t = N ..
2N - 1) gives a weight to key t - N + 1. The score is the mean of these weights. It is 1 if a head looks only at these
keys. It is small if a head gives equal weights to all keys: then each of these weights is about 1 / t.

    python -m numpy_attention grade tutorials/exercises/prefix_matching.py            check your function
    python -m numpy_attention grade tutorials/exercises/prefix_matching.py --hint 1   the first of three hints
"""

import numpy as np


def prefix_matching(weights, N):
    """weights (H, 2N, 2N): heads, queries, keys -> (H,)."""
    raise NotImplementedError
