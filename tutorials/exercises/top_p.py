"""Exercise: the next token, by top-p

    softmax     0.25  0.50  0.15  0.10        p = 0.7
    kept        0.25  0.50   .     .          the likeliest, the next likeliest, and so on, until the sum is >= p
    divided     0.33  0.67   .     .          divided by their sum, so that they add up to one again
    cumulative  0.33  1.00                    if the random number u is 0.6, draw returns the second token,
                                              because 1.00 is the first sum above 0.6

Write two functions. top_p(logits, p) returns the probabilities; they are zero for the tokens that are not kept.
draw(probabilities, u) returns the first token whose cumulative sum is above u. The number u is in [0, 1).

Return the probabilities in the order of the logits, not in sorted order.
A token with probability zero is never drawn, not even if u = 0.

    python -m numpy_attention grade tutorials/exercises/top_p.py            check your function
    python -m numpy_attention grade tutorials/exercises/top_p.py --hint 1   the first of three hints
"""

import numpy as np


def top_p(logits, p):
    """Logits (B, V), 0 < p <= 1 -> probabilities (B, V), which sum to one in each row."""
    raise NotImplementedError


def draw(probabilities, u):
    """Probabilities (V,), a number u -> the id of a token (its index), an int."""
    raise NotImplementedError
