"""Chapter 21, continued. The head of a model: a score for every token, and the loss of the scores

    x --> @ w --> logits          tied weights: w = table^T, so the score of a token is
    (B, T, d_model)  (B, T, V)    the product of x with the token's own row of the embedding

With tied weights the table is used twice: to read tokens at the bottom of a model and to score them at the top. The
gradient of the second use is that of w in Chapter 1, transposed. The gradient of the first use is added later:

    dx = dlogits table        dtable = dlogits^T x + ...

Training needs the logits only for the loss. If there are too many logits, the loss, dx and dtable are computed from x
in blocks of rows, without an array of all logits (Chapter 12, appendix).
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent
from numpy_attention.layers.c14_linear import Linear
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.models.c21_stack import Stream
from numpy_attention.ops.c01a_sums import as_rows
from numpy_attention.ops.c11_losses import CrossEntropyCache, cross_entropy
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


class HeadCache(NamedTuple):
    """What backward needs from the forward of a head."""

    x: np.ndarray  # (B, T, d_model)


class LossByRows(NamedTuple):
    """Replaces dlogits when the loss was computed by rows: the backward of the loss returns dx and dtable."""

    dloss: float
    cache: LinearCrossEntropyCache


class Head(NamedTuple):
    """The last product of a model: x times the matrix of `linear`, or times the table if weights are tied.

    Shapes: x (B, T, d_model) -> logits (B, T, V)
    """

    embedding: Embedding
    linear: Linear | None  # None with tied weights; a head has no bias

    def vectors(self) -> np.ndarray:
        """The vectors (V, d_model), one for each token; a logit is the product of x and a vector."""
        return self.embedding.table if self.linear is None else self.linear.w.T

    def frozen(self) -> bool:
        """Whether the vectors are frozen (Chapter 37): then backward skips dvectors, as much work as the forward."""
        return bool((self.embedding if self.linear is None else self.linear).frozen)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, HeadCache]:
        vectors = self.vectors()
        logits = as_rows(x) @ vectors.T  # (B T, V)
        return logits.reshape(*x.shape[:-1], len(vectors)), HeadCache(x)

    def gradients(self, dlogits: np.ndarray | LossByRows, cache: HeadCache) -> Stream:
        """Yield the gradient of the head's matrix (if weights are not tied); return dx and dtable.

        The caller adds the gradient of the embedding to dtable. dtable is None if the table is frozen, and zeros if
        only the embedding uses the table.
        """
        x, vectors = cache.x, self.vectors()
        if isinstance(dlogits, LossByRows):
            # loss = linear_cross_entropy(x, vectors, targets)
            dx, dvectors = linear_cross_entropy_backward(*dlogits)  # (B, T, d_model), (V, d_model)
        else:
            require_cotangent("head", "dlogits", dlogits, (*x.shape[:-1], len(vectors)), x.dtype)
            # logits = x @ vectors.T
            dx = (as_rows(dlogits) @ vectors).reshape(x.shape)  # (B, T, d_model)
            dvectors = None if self.frozen() else as_rows(dlogits).T @ as_rows(x)  # (V, d_model)
        if self.linear is None:
            # vectors = table
            return dx, dvectors
        # vectors = w.T
        if dvectors is not None:
            yield "head.w", dvectors.T.copy()
        return dx, None if self.embedding.frozen else np.zeros_like(self.embedding.table)

    def loss(
        self, x: np.ndarray, targets: np.ndarray, logits_at_once: int, label_smoothing: float = 0.0
    ) -> tuple[np.ndarray, HeadCache, LossOfHead]:
        """The loss of the scores, with at most `logits_at_once` logits in memory at a time.

        Shapes: x (B, T, d_model), targets (B, T) -> loss, a single number
        """
        vectors = self.vectors()  # (V, d_model)
        if len(as_rows(x)) * len(vectors) <= logits_at_once:
            logits, cache = self.forward(x)  # (B, T, V)
            loss, of_loss = cross_entropy(logits, targets, label_smoothing=label_smoothing)
            return loss, cache, of_loss
        rows = max(1, logits_at_once // len(vectors))
        loss, by_rows = linear_cross_entropy(
            x, vectors, targets, label_smoothing=label_smoothing, block_size=rows, frozen=self.frozen()
        )
        return loss, HeadCache(x), by_rows
