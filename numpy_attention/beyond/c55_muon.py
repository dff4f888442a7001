"""Chapter 55. Muon: the direction of a whole matrix

Adam (Chapter 25) looks at each number of a matrix by itself. Muon looks at the matrix. Its gradient is G = U S V^T,
with the singular values S. Often a few of them are far larger than the others, so a step along G moves w in a few
directions only. Muon replaces all singular values by 1:

    G = U S V^T  -->  O = U V^T        every direction that occurs in G gets a step of the same length

O is itself a gradient: that of the nuclear norm, the sum of the singular values. To see it, let W = U S V^T change by
dW. The matrices U and V turn, but to first order they do not change the sum, since their columns stay orthonormal:

    ds_i = u_i^T dW v_i        d sum_i s_i = sum_i u_i^T dW v_i = <U V^T, dW>

Newton and Schulz need no singular values. For X with singular values s, the matrix a X + b (X X^T) X + c (X X^T)^2 X
has the singular values a s + b s^3 + c s^5. With (a, b, c) = (3.4445, -4.775, 2.0315), five steps move every s from
0.002 to 1 near 1, between 0.68 and 1.21. That is enough for a step.

Muon is for the matrices inside the blocks; embeddings, the head, norms and biases get AdamW. An element of O
(d_in, d_out) has the root mean square 1 / sqrt(max(d_in, d_out)). Muon multiplies O by 0.2 sqrt(max(d_in, d_out)), so
an element of w moves as far as in a usual step of AdamW, and one learning rate serves both:

    u = momentum u + (1 - momentum) G        w <- (1 - rate decay) w - rate 0.2 sqrt(max(d_in, d_out)) O(u')

u' = momentum u + (1 - momentum) G looks one step ahead (Nesterov). O has no length, so a matrix whose gradient becomes
0 (an expert without tokens) still moves for as long as u is not 0.
"""

import math
from collections.abc import Mapping

import numpy as np

from numpy_attention.errors import require_float, require_number, require_size, shape_error
from numpy_attention.training.c25_optimizers import AdamW

QUINTIC = (3.4445, -4.775, 2.0315)


def orthogonalized(g: np.ndarray, steps: int = 5) -> np.ndarray:
    """Nearly U V^T, where g = U S V^T: the same directions, with singular values near 1.

    Formula: X <- a X + b (X X^T) X + c (X X^T)^2 X, five times, from X = g / |g|

    Shapes: g (d_in, d_out) -> (d_in, d_out). An optimizer uses it, so there is no backward.

    Raises: ValueError when g is not a matrix, or for steps below 1; TypeError when g is not an array of floats.

    Source: Jordan et al., Muon: An Optimizer for Hidden Layers in Neural Networks (2024).

    >>> orthogonalized(np.diag([4.0, 1.0])).round(1)
    array([[0.7, 0. ],
           [0. , 0.7]])
    """
    require_float("orthogonalized", g=g)
    if g.ndim != 2:
        raise shape_error("orthogonalized", "g", "(d_in, d_out)", g.shape)
    require_size("orthogonalized", "steps", steps)
    a, b, c = QUINTIC
    x = g.T if g.shape[0] > g.shape[1] else g  # the smaller product
    x = x / np.maximum(np.abs(x).max(initial=0), np.finfo(x.dtype).tiny)  # now the squares neither overflow nor vanish
    x = x / (np.sqrt((x * x).sum()) + 1e-7)  # no singular value is above 1
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.T if g.shape[0] > g.shape[1] else x


class Muon(AdamW):
    """Orthogonalized momentum for the matrices inside the blocks, AdamW for all other parameters.

    Raises: TypeError or ValueError if the parameters are not contiguous arrays of floats, or if one is listed twice.

    Source: Jordan et al., Muon: An Optimizer for Hidden Layers in Neural Networks (2024); the scale 0.2 and the decay:
    Liu et al., Muon is Scalable for LLM Training (2025), section 2.2.
    """

    def __init__(
        self, parameters: Mapping[str, np.ndarray], learning_rate: float = 1e-3, momentum: float = 0.95,
        beta_1: float = 0.9, beta_2: float = 0.95, eps: float = 1e-8, weight_decay: float = 0.1,
    ) -> None:
        super().__init__(parameters, learning_rate, beta_1, beta_2, eps, weight_decay)
        self.momentum = require_number("Muon", "momentum", momentum, at_least=0, below=1)
        names = [name for name, p in self.parameters.items() if "blocks." in name and p.ndim == 2]
        self.u = {name: self.m.pop(name) for name in names}  # AdamW steps along what stays in m
        self.v = {name: self.v[name] for name in self.m}

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """Update every parameter in place; `grads` has the names and shapes of the parameters and is not changed."""
        super().step(grads, learning_rate)
        rate = self.learning_rate if learning_rate is None else learning_rate
        for name, u in self.u.items():
            p, g = self.parameters[name], grads[name]
            u *= self.momentum
            u += (1 - self.momentum) * g
            o = orthogonalized(self.momentum * u + (1 - self.momentum) * g)
            p *= 1 - rate * self.weight_decay
            p -= rate * 0.2 * math.sqrt(max(p.shape)) * o

    def state(self) -> dict[str, np.ndarray]:
        """Everything besides the parameters that the next step needs, as arrays to save."""
        return super().state() | {f"u.{name}": u for name, u in self.u.items()}
