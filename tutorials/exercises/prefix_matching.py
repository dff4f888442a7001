"""Exercise: which heads look for what came last time

In "the cat sat. the cat" the second "the" stands where the first one stood before, and "cat" came next. A head that
looks from there to the first "cat", the token behind the earlier copy, can say what comes: an induction head. To find
such heads, take N tokens at random, and the same N tokens once more:

    position      0   1   2   3   4   5       N = 3
    token         a   b   c   a   b   c
    query t = 4               its token, b, stood at t - N = 1; what came next, c, at t - N + 1 = 2

Write: prefix_matching(weights, N), which returns for each head the mean of the weights of the queries of the second
half, t = N .. 2N - 1, on key t - N + 1. A head that does nothing else has 1, one that looks evenly has 1 / t or so.

    python -m numpy_attention grade tutorials/exercises/prefix_matching.py            what is right already
    python -m numpy_attention grade tutorials/exercises/prefix_matching.py --hint 1   three hints, one at a time
"""

import numpy as np


def prefix_matching(weights, N):
    """Weights (H, 2N, 2N), queries by keys -> (H,)."""
    raise NotImplementedError
