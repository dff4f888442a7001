"""Chapter 53. Experts: many feed-forward networks, a few of them for each token

    logits = x w_router        weights, experts = route(logits)        y = sum over the chosen e of weights_e FFN_e(x)

Each expert is the SwiGLU network of Chapter 18. With E experts, of which k read a token, the layer has the parameters
of E networks, but a token costs the work of k: a mixture of experts (MoE).

The loop runs over the experts, not over the tokens: expert e gathers the rows of x that chose it, and adds its output
to the same rows of y. A token is at most once in the list of an expert, so no row is added to twice in one step. Every
token gets all its k experts; no token is dropped.

Gradient. y uses the weight of an expert and its output, so the product rule gives both, for the rows of the expert:

    dweights_e = sum over d_model of dy FFN_e(x)        dFFN_e = weights_e dy

x has k + 1 uses: every chosen expert reads it, and so does the router. The gradient of an expert without tokens is 0.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.beyond.c52_router import ORDERS, RouteCache, route, route_backward
from numpy_attention.errors import require_choice, require_cotangent, require_float, require_number, require_sizes
from numpy_attention.layers.c13_layer import Layer, Parameters, flat_gradients, glorot, normal
from numpy_attention.layers.c14a_project import Matrix, ProjectionCache, project, project_backward
from numpy_attention.layers.c18_feed_forward import FeedForward, FeedForwardCache
from numpy_attention.ops.c01a_sums import as_rows


class Visit(NamedTuple):
    """The tokens of one expert."""

    rows: np.ndarray  # (n,), the tokens that chose the expert
    slots: np.ndarray  # (n,), its place in the list of each token
    y: np.ndarray  # (n, d_model), the output of the expert
    cache: FeedForwardCache


class ExpertsCache(NamedTuple):
    """What backward needs; `logits` and `route.experts` show the load of the experts."""

    x: np.ndarray  # (..., d_model)
    router: ProjectionCache
    logits: np.ndarray  # (N, E)
    route: RouteCache
    weights: np.ndarray  # (N, top_k)
    visits: list[Visit | None]  # None for an expert without tokens
    dlogits: np.ndarray | None = None  # (N, E), the gradient of a loss on the logits, which backward adds


class Experts(Layer):
    """A feed-forward layer of num_experts SwiGLU networks; a router sends each token to top_k of them.

    `order` and `renormalize` are those of `route`; dropout acts inside each network.

    Formula: y = sum over the chosen experts of weight FFN(x)

    Shapes: x (..., d_model) -> y (..., d_model).

    Raises: TypeError or ValueError for invalid sizes, or a top_k above num_experts.

    Source: Shazeer et al., Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer (2017); in a
    transformer of today: Jiang et al., Mixtral of Experts (2024), section 2.1.
    """

    def __init__(
        self, d_model: int, d_ff: int, num_experts: int, top_k: int, rng: np.random.Generator | None,
        order: str = "softmax_first", renormalize: bool = True, dropout: float = 0.0, dtype: Any = np.float32,
    ) -> None:
        require_sizes("Experts", d_model=d_model, d_ff=d_ff, num_experts=num_experts)
        self.top_k = int(require_number("Experts", "top_k", top_k, at_least=1, at_most=num_experts, whole=True))
        require_choice("Experts", "order", order, ORDERS)
        self.order, self.renormalize = order, renormalize
        self.w_router: Matrix = normal(rng, (d_model, num_experts), glorot(d_model, num_experts), dtype)
        options: Any = ("swiglu", False, dropout, dtype)
        self.experts = [FeedForward(d_model, d_ff, rng, *options) for _ in range(num_experts)]

    def forward(self, x: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, ExpertsCache]:
        require_float("Experts", x=x)
        x_rows = as_rows(x)  # (N, d_model)
        logits, router = project(x_rows, self.w_router)  # (N, E)
        weights, of_route = route(logits, self.top_k, self.order, self.renormalize)  # (N, top_k)
        y = np.zeros_like(x_rows)
        visits: list[Visit | None] = []
        for e, expert in enumerate(self.experts):
            rows, slots = np.nonzero(of_route.experts == e)
            visits.append(None)
            if len(rows):
                y_e, cache = expert.forward(x_rows[rows], rng)  # (n, d_model)
                y[rows] += weights[rows, slots, None] * y_e
                visits[e] = Visit(rows, slots, y_e, cache)
        return y.reshape(x.shape), ExpertsCache(x, router, logits, of_route, weights, visits)

    def backward(self, dy: np.ndarray, cache: ExpertsCache) -> tuple[np.ndarray, Parameters]:
        require_cotangent("Experts", "dy", dy, cache.x.shape, cache.x.dtype)
        grads: dict[str, Any] = {"w_router": None}
        dy_rows = as_rows(dy)  # (N, d_model)
        dweights, dx = np.zeros_like(cache.weights), np.zeros_like(dy_rows)
        for e, (expert, visit) in enumerate(zip(self.experts, cache.visits, strict=True)):
            if visit is None:
                grads[f"experts.{e}"] = {name: np.zeros_like(p) for name, p in expert.parameters().items()}
                continue
            rows, slots, y_e, of_expert = visit
            # y[rows] += weights * y_e
            dweights[rows, slots] = (dy_rows[rows] * y_e).sum(axis=-1)
            dy_e = cache.weights[rows, slots, None] * dy_rows[rows]  # (n, d_model)
            # y_e = expert(x[rows])
            dx_e, grads[f"experts.{e}"] = expert.backward(dy_e, of_expert)
            dx[rows] += dx_e
        # weights = route(logits)
        dlogits = route_backward(dweights, cache.route)
        if cache.dlogits is not None:
            dlogits = dlogits + cache.dlogits
        # logits = x @ w_router
        dx_router, grads["w_router"], _ = project_backward(dlogits, self.w_router, cache.router)
        return (dx + dx_router).reshape(dy.shape), flat_gradients(grads)
