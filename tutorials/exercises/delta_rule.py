"""Exercise: the gradients of one step of the delta rule

    old   = k S                  S (..., d_k, d_v), k (..., 1, d_k)
    new   = beta (v - old)       v (..., 1, d_v), beta (..., 1, 1)
    S_new = S + k^T new

S is the state. A token reads the old value of its key, and writes the part beta of the difference between its own value
and the old value. This file has the forward. Write delta_rule_backward(dS_new, cache), which returns dS, dk, dv, dbeta.

Take the three lines from the last to the first. S and k are used twice, so each of their gradients has two parts.

    python -m numpy_attention grade tutorials/exercises/delta_rule.py            check your function
    python -m numpy_attention grade tutorials/exercises/delta_rule.py --hint 1   the first of three hints
"""


def delta_rule(S, k, v, beta):
    """S (..., d_k, d_v), k (..., 1, d_k), v (..., 1, d_v), beta (..., 1, 1) -> S_new, with the shape of S."""
    old = k @ S  # (..., 1, d_v)
    new = beta * (v - old)
    S_new = S + k.swapaxes(-1, -2) @ new  # (..., d_k, d_v)
    return S_new, (S, k, v, beta, old, new)


def delta_rule_backward(dS_new, cache):
    """dS_new, with the shape of S -> dS, dk, dv, dbeta, with the shapes of S, k, v, beta."""
    S, k, v, beta, old, new = cache
    raise NotImplementedError
