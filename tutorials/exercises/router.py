"""Exercise: how a gradient passes through the router of experts

    experts = the numbers of the top_k largest logits of each row
    weights = softmax of these logits                                 (N, top_k)
    balance = E sum_e f_e P_e        f_e: the share of the tokens that chose e, P_e: the mean of softmax(logits)_e

Given: both forwards. Write: route_backward(dweights, cache) and load_balancing_loss_backward(dloss, cache); both return
dlogits (N, E). Small changes of the logits do not change the choice, so experts and f are constants.

    python -m numpy_attention grade tutorials/exercises/router.py            check your functions
    python -m numpy_attention grade tutorials/exercises/router.py --hint 1   the first of three hints
"""

import numpy as np


def route(logits, top_k):
    """logits (N, E) -> weights (N, top_k)."""
    experts = np.argsort(-logits, axis=1)[:, :top_k]  # (N, top_k)
    chosen = np.take_along_axis(logits, experts, axis=1)  # (N, top_k)
    e = np.exp(chosen - chosen.max(axis=1, keepdims=True))
    weights = e / e.sum(axis=1, keepdims=True)
    return weights, (weights, experts, logits.shape)


def route_backward(dweights, cache):
    """dweights (N, top_k) -> dlogits (N, E)."""
    weights, experts, shape = cache
    raise NotImplementedError


def load_balancing_loss(logits, top_k):
    """logits (N, E) -> a single number."""
    N, E = logits.shape
    experts = np.argsort(-logits, axis=1)[:, :top_k]
    f = (np.bincount(experts.reshape(-1), minlength=E) / N).astype(logits.dtype)  # (E,)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)  # (N, E)
    return E * (f * p.mean(axis=0)).sum(), (p, f)


def load_balancing_loss_backward(dloss, cache):
    """dloss, a single number -> dlogits (N, E)."""
    p, f = cache
    raise NotImplementedError
