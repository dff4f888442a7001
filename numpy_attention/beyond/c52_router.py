"""Chapter 52. The router: which experts read a token?

A layer with E experts has E feed-forward networks (Chapter 53). Every token goes to the k experts with the largest
logits, and their outputs are added with weights. Two orders are in use:

    softmax_first    p = softmax(logits)                     weights = p of the k largest, perhaps divided by their sum
    top_k_first      the k largest logits                    weights = softmax of these k

With `renormalize`, both are the same function, exp(l_i) / sum over the chosen of exp(l_j): the sum over all experts
cancels. So the code has two cases, a softmax of the chosen logits and a softmax of all.

Gradient. The choice itself is constant near a point, so its derivative is 0, and the gradient passes through the
weights of the chosen experts. Renormalized, a weight depends on chosen logits only:

    dlogits_chosen = weights (dweights - sum(weights dweights))        the other logits get 0

An expert that is not chosen learns nothing from this token, and its logit does not either. So a router can fall in love
with a few experts. Two losses on the logits reach all of them. With f_e, the share of the tokens that chose expert e,
and P_e, the mean of p_e over the N tokens,

    balance = E sum_e f_e P_e        dp_ne = E f_e / N

f is a count, so it is constant; the gradient lowers p where an expert has more than its share, and raises the others.
If all experts have the same load, balance = k. The **z-loss** keeps logsumexp near 0, so logits cannot grow together:

    z = mean over n of L_n^2,  L = logsumexp(logits)        dlogits = 2 L p / N
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_cotangent, require_number
from numpy_attention.ops.c01a_sums import sum_in_rows
from numpy_attention.ops.c03_softmax import SoftmaxCache, softmax, softmax_backward
from numpy_attention.ops.c11_losses import require_single
from numpy_attention.shapes import check_shapes

ORDERS = ("softmax_first", "top_k_first")
SHAPES = "logits: N E; E >= 1"


class RouteCache(NamedTuple):
    """The choice, and the softmax that gave the weights."""

    experts: np.ndarray  # (N, top_k), the numbers of the chosen experts; the largest logit comes first
    softmax: SoftmaxCache  # of the chosen logits, or of all
    over_all: bool
    shape: tuple[int, int]  # (N, E)


def route(
    logits: np.ndarray, top_k: int, order: str = "softmax_first", renormalize: bool = True
) -> tuple[np.ndarray, RouteCache]:
    """Choose top_k experts for each token, and the weights of their outputs.

    Formula: weights = p_chosen, divided by their sum with `renormalize`, where p = softmax(logits); with "top_k_first",
    weights = softmax(logits_chosen), whose sum is always 1

    Shapes: logits (N, E) -> weights (N, top_k); cache.experts (N, top_k). Of equal logits, the first is chosen.

    Raises: ValueError for a top_k below 1 or above E, or an unknown order; TypeError when logits is not an array of
    floats.

    Source: Shazeer et al., Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer (2017),
    section 2.1; softmax first: Fedus, Zoph, Shazeer, Switch Transformers (2022), section 2.1.

    >>> weights, cache = route(np.log(np.array([[1.0, 6.0, 3.0]])), top_k=2)
    >>> cache.experts, weights.round(3)
    (array([[1, 2]]), array([[0.667, 0.333]]))
    """
    check_shapes("route", SHAPES, logits=logits)
    require_choice("route", "order", order, ORDERS)
    experts = chosen_experts("route", logits, top_k)
    over_all = order == "softmax_first" and not renormalize
    if over_all:
        p, of_softmax = softmax(logits)  # (N, E)
        weights = np.take_along_axis(p, experts, axis=1)  # (N, top_k)
    else:
        weights, of_softmax = softmax(np.take_along_axis(logits, experts, axis=1))  # (N, top_k)
    return weights, RouteCache(experts, of_softmax, over_all, logits.shape)


def route_backward(dweights: np.ndarray, cache: RouteCache) -> np.ndarray:
    """Gradient of `route`; the choice of the experts is constant.

    Shapes: dweights (N, top_k) -> dlogits (N, E)
    """
    experts, of_softmax, over_all, shape = cache
    require_cotangent("route_backward", "dweights", dweights, experts.shape, of_softmax.y.dtype)
    if not over_all:
        # weights = softmax(logits[experts])
        return _at_experts(softmax_backward(dweights, of_softmax), experts, shape)
    # weights = p[experts]
    dp = _at_experts(dweights, experts, shape)
    # p = softmax(logits)
    return softmax_backward(dp, of_softmax)


def _at_experts(values: np.ndarray, experts: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The values (N, top_k) at the places of their experts in an array (N, E) of zeros."""
    y = np.zeros_like(values, shape=shape)
    y[np.arange(len(y), like=values)[:, None], experts] = values
    return y


def chosen_experts(op: str, logits: np.ndarray, top_k: int) -> np.ndarray:
    """The numbers of the top_k largest logits of each row, the largest first.

    Shapes: logits (N, E) -> (N, top_k)
    """
    top_k = int(require_number(op, "top_k", top_k, at_least=1, at_most=logits.shape[1], whole=True))
    keys = np.where(np.isnan(logits.real), np.inf, logits.real)  # a NaN is chosen, so the loss shows it
    return np.argsort(-keys, axis=1, kind="stable")[:, :top_k]


def load_balancing_loss(logits: np.ndarray, top_k: int) -> tuple[np.ndarray, tuple[SoftmaxCache, np.ndarray]]:
    """A measure of the load of the experts: top_k if it is even, up to E if all tokens choose the same experts.

    Formula: loss = E sum_e f_e P_e, with f_e = share of the tokens that chose e, P_e = mean of softmax(logits)_e

    Shapes: logits (N, E) -> loss, a single number

    Raises: ValueError for a top_k below 1 or above E; TypeError when logits is not an array of floats.

    Source: Fedus, Zoph, Shazeer, Switch Transformers (2022), equations 4 to 6; with several experts for a token, each
    choice counts, as in Mixtral.

    >>> float(load_balancing_loss(np.zeros((6, 4)), top_k=2)[0])
    2.0
    """
    check_shapes("load_balancing_loss", SHAPES + "; N >= 1", logits=logits)
    experts = chosen_experts("load_balancing_loss", logits, top_k)
    N, E = logits.shape
    f = (experts[:, :, None] == np.arange(E, like=experts)).sum(axis=(0, 1)) / N  # (E,)
    p, of_softmax = softmax(logits)
    dp = (E * f / N).astype(logits.real.dtype)  # the same for every token
    return (p * dp).sum(), (of_softmax, dp)


def load_balancing_loss_backward(dloss: np.ndarray | float, cache: tuple[SoftmaxCache, np.ndarray]) -> np.ndarray:
    """Gradient of `load_balancing_loss`: that of the softmax, with dp = dloss E f / N in every row.

    Shapes: dloss a single number -> dlogits (N, E)
    """
    require_single("load_balancing_loss_backward", dloss)
    of_softmax, dp = cache
    # loss = sum of p * E f / N
    dp = np.broadcast_to((dloss * dp).astype(of_softmax.y.dtype), of_softmax.y.shape)
    # p = softmax(logits)
    return softmax_backward(dp, of_softmax)


def router_z_loss(logits: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """The mean square of logsumexp: it keeps the logits of a router from growing together.

    Formula: loss = mean over the rows of logsumexp(logits)^2

    Shapes: logits (N, E) -> loss, a single number

    Raises: ValueError when logits is not (N, E); TypeError when it is not an array of floats.

    Source: Zoph et al., ST-MoE: Designing Stable and Transferable Sparse Expert Models (2022), equation 5.

    >>> float(router_z_loss(np.full((2, 4), -np.log(4.0)))[0])  # log-probabilities: logsumexp = 0
    0.0
    """
    check_shapes("router_z_loss", SHAPES + "; N >= 1", logits=logits)
    largest = logits.max(axis=1, keepdims=True)
    e = np.exp(logits - largest)
    total = sum_in_rows(e)
    L = largest + np.log(total)  # (N, 1)
    return (L**2).mean(), (L, e / total)


def router_z_loss_backward(dloss: np.ndarray | float, cache: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Gradient of `router_z_loss`: dlogits = dloss 2 L p / N.

    Shapes: dloss a single number -> dlogits (N, E)
    """
    require_single("router_z_loss_backward", dloss)
    L, p = cache
    # loss = mean of L^2
    dL = (dloss * 2 * L / len(L)).astype(L.dtype)
    # L = logsumexp(logits)
    return dL * p
