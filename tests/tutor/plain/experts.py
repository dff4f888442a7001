"""The plain forms of the router, of its losses and of the experts: token by token."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array


def largest(row: Array, k: int) -> list[int]:
    """The numbers of the k largest logits, the largest first."""
    return sorted(range(len(row)), key=lambda e: -row[e])[:k]


def plain_route(logits: Array, top_k: int, order: str = "softmax_first", renormalize: bool = True) -> Array:
    """Divides by the sum of the chosen ones, or of all."""
    found = []
    for row in logits:
        chosen = largest(row, top_k)
        over = row if order == "softmax_first" and not renormalize else row[chosen]
        found.append(np.exp(row[chosen] - np.logaddexp.reduce(over)))
    return np.array(found)


def plain_load_balancing_loss(logits: Array, top_k: int) -> Array:
    """Counts the tokens of each expert."""
    N, E = logits.shape
    counts = [sum(e in largest(row, top_k) for row in logits) for e in range(E)]
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    return E * np.sum([counts[e] / N * p[:, e].sum() / N for e in range(E)])


def plain_router_z_loss(logits: Array) -> Array:
    """The mean of the squares."""
    return np.mean([np.logaddexp.reduce(row) ** 2 for row in logits])


def plain_experts(x: Array, layer: Any, **arrays: Array) -> Array:
    """The dense form: every expert reads every token, and the weight of the experts that are not chosen is 0."""
    rows = x.reshape(-1, x.shape[-1])
    logits = rows @ layer.w_router
    weights = np.zeros_like(logits)
    for n, row in enumerate(plain_route(logits, layer.top_k, layer.order, layer.renormalize)):
        weights[n, largest(logits[n], layer.top_k)] = row
    y = np.zeros_like(rows)
    for e, expert in enumerate(layer.experts):
        a = rows @ expert.w_gate
        y += weights[:, e : e + 1] * ((a / (1 + np.exp(-a)) * (rows @ expert.w_1)) @ expert.w_2)
    return y.reshape(x.shape)


PLAIN = {
    "route": plain_route, "load_balancing_loss": plain_load_balancing_loss, "router_z_loss": plain_router_z_loss,
    "Experts": plain_experts,
}
