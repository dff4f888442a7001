"""Chapter 21, continued. The head of a model: a score for every token, and the loss of the scores

    x --> @ w --> logits          tied weights: w = table^T, so the score of a token is
    (B, T, d_model)  (B, T, V)    the product of x with the token's own row of the embedding

With tied weights the table is used twice: to read tokens at the bottom of a model and to score them at the top. So its
gradient is a sum of two terms. The head computes the second, which is dw of Chapter 1, transposed; the model adds the
first:

    dx = dlogits table        dtable = dlogits^T x + ...

Training needs the logits only for the loss. If there are too many logits, the loss, dx and dtable are computed from x
in blocks of rows, without an array of all logits (Chapter 12, appendix).
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent
from numpy_attention.ops.c01a_sums import as_rows
from numpy_attention.ops.c11_losses import CrossEntropyCache, cross_entropy, cross_entropy_backward
from numpy_attention.ops.c12b_linear_cross_entropy import (
    LinearCrossEntropyCache,
    linear_cross_entropy,
    linear_cross_entropy_backward,
)

# The number of logits in memory at a time: 128 MiB in float32. Measured on one core with a table of 50,257 x 768: the
# time and the peak memory (without the inputs) of forward and backward of head and loss. dtable alone takes 147 MiB.
#
#       rows     all logits            in blocks (of 128, 512, 667 rows)
#        128     0.36 s,   221 MiB     0.51 s,   319 MiB
#      2,048     7.4 s,  1,331 MiB     8.5 s,    399 MiB
#      8,192     32 s,   4,916 MiB     34 s,     473 MiB
#
# With few rows, blocks save nothing: the part that a block adds to dtable is as large as dtable. With many rows,
# computing the logits twice costs only a tenth more time, because one array of gigabytes is slow too.
LOGITS_AT_ONCE = 2**25
LossOfHead = CrossEntropyCache | LinearCrossEntropyCache  # with all logits, or in blocks of rows


class Head(NamedTuple):
    """The last product of a model: one vector (V, d_model) for each token; a logit is the product of x and a vector.

    Shapes: x (B, T, d_model) -> logits (B, T, V)
    """

    vectors: np.ndarray  # the embedding table if weights are tied, else w^T; a head has no bias
    frozen: bool = False  # Chapter 37: then backward skips dvectors, as much work as the forward

    def forward(self, x: np.ndarray) -> np.ndarray:
        logits = as_rows(x) @ self.vectors.T  # (B T, V)
        return logits.reshape(*x.shape[:-1], len(self.vectors))

    def backward(self, dlogits: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return dx and dvectors (None if they are frozen)."""
        require_cotangent("head", "dlogits", dlogits, (*x.shape[:-1], len(self.vectors)), x.dtype)
        # logits = x @ vectors.T
        dx = (as_rows(dlogits) @ self.vectors).reshape(x.shape)  # (B, T, d_model)
        return dx, None if self.frozen else as_rows(dlogits).T @ as_rows(x)  # (V, d_model)

    def loss(
        self, x: np.ndarray, targets: np.ndarray, logits_at_once: int = LOGITS_AT_ONCE, label_smoothing: float = 0.0
    ) -> tuple[np.ndarray, LossOfHead]:
        """The loss of the scores, with at most `logits_at_once` logits in memory at a time.

        Shapes: x (B, T, d_model), targets (B, T) -> loss, a single number
        """
        if len(as_rows(x)) * len(self.vectors) <= logits_at_once:
            return cross_entropy(self.forward(x), targets, label_smoothing=label_smoothing)
        rows = max(1, logits_at_once // len(self.vectors))
        return linear_cross_entropy(
            x, self.vectors, targets, label_smoothing=label_smoothing, block_size=rows, frozen=self.frozen
        )

    def loss_backward(
        self, dloss: np.ndarray | float, x: np.ndarray, cache: LossOfHead
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return dx and dvectors (None if they are frozen)."""
        if isinstance(cache, LinearCrossEntropyCache):
            # loss = linear_cross_entropy(x, vectors, targets)
            return linear_cross_entropy_backward(dloss, cache)  # (B, T, d_model), (V, d_model)
        # loss = cross_entropy(x @ vectors.T, targets)
        return self.backward(cross_entropy_backward(dloss, cache), x)
