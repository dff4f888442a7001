"""Exercise: the next token, by top-p

    softmax     0.25  0.50  0.15  0.10        p = 0.7
    kept        0.25  0.50   .     .          the likeliest tokens, as few as possible, with a sum of at least p
    divided     0.33  0.67   .     .          by their sum, so that they add up to one again
    cumulative  0.33  1.00                    u = 0.6 gives the second token: the first sum that is above u

Write top_p(logits, p), which returns the probabilities, zero for the tokens that are not kept. And write
draw(probabilities, u), which returns the token for a number u in [0, 1).

The tokens stay at their places. A token of probability zero is never drawn, not even with u = 0.

    python -m numpy_attention grade tutorials/exercises/top_p.py            check your function
    python -m numpy_attention grade tutorials/exercises/top_p.py --hint 1   three hints, one at a time
"""

import numpy as np


def top_p(logits, p):
    """Logits (B, V), 0 < p <= 1 -> probabilities (B, V), which sum to one in each row."""
    raise NotImplementedError


def draw(probabilities, u):
    """Probabilities (V,), a number u -> the number of a token, an int."""
    raise NotImplementedError
