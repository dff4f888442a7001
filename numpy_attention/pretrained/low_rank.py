"""Chapter 37. Low rank: fine-tuning with few numbers

A pretrained matrix is nearly right for a new task already. What the task changes in it has few directions, so the
change is learned as a product of two thin matrices, and the matrix itself stays as it is:

    x ----------> @ w (d_in, d_out), frozen ---------> + --> y          y = x w + scale (x a) b
    |                                                  ^
    +--> @ a (d_in, r) --> z --> @ b (r, d_out) --> * scale             scale = alpha / r

With r = 8 a matrix of 576 x 1,536, which has 884,736 numbers, learns 8 (576 + 1,536) = 16,896. This layer stands in a
block where the matrix stood (Chapter 14, `project`), and nothing else of the block changes. The backward is that of
Chapter 1 three times. Where the forward forks, the gradients of x add:

    db = scale z^T dy      dz = scale dy b^T      da = x^T dz      dx = dy w^T + dz a^T

The large product that is missing is dw = x^T dy: nobody asks for it. It is one of three of that size, with y = x w and
dy w^T, so a third of a step is saved; and an optimizer has moments for a and b only.

b starts at zero, so the first step starts from the pretrained model, to the last bit. a starts at random: were it zero
too, then z = 0 and dz = 0, and neither side would ever get a gradient. If alpha is kept, scale keeps the change of the
same size when r is changed.

When all is learned the change can be added to the matrix, w + scale a b, and the model is as fast as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_float, require_number, require_size, shape_error
from numpy_attention.layers.feed_forward import FeedForward
from numpy_attention.layers.layer import Layer, Parameters, normal
from numpy_attention.layers.multi_head_attention import MultiHeadAttention
from numpy_attention.models.gpt import GPT
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.ops.linear import LinearCache, linear, linear_backward
from numpy_attention.ops.sums import as_rows


class LowRankCache(NamedTuple):
    """What backward needs: x and a, z and b."""

    linear_a: LinearCache
    linear_b: LinearCache


class LowRank(Layer):
    """y = x w + (alpha / r) (x a) b with w frozen: in the place of a matrix w, a layer that changes it by rank r.

    `alpha` is 2 r unless it is given. a is drawn with standard deviation 1 / sqrt(d_in), b is zero. Without an rng a
    is zero as well, to be loaded.

    Shapes: x (..., d_in) -> y (..., d_out).

    Raises: ValueError for a rank that is no integer from 1 on, or an alpha that is not above 0 and finite; TypeError
    for a w that is no array of floats.

    Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021), section 4.1.
    """

    frozen = ("w",)

    def __init__(
        self, w: np.ndarray, rank: int, alpha: float | None = None, rng: np.random.Generator | None = None
    ) -> None:
        require_float("LowRank", w=w)
        if w.ndim != 2 or 0 in w.shape:
            raise shape_error("LowRank", "w", "(d_in, d_out), both at least 1", w.shape)
        require_size("LowRank", "rank", rank)
        if alpha is not None:
            require_number("LowRank", "alpha", alpha, above=0)
        d_in, d_out = w.shape
        self.rank = int(rank)
        self.alpha = float(2 * rank if alpha is None else alpha)
        self.scale = self.alpha / self.rank
        self.w = w
        self.a = np.asarray(normal(rng, (d_in, rank), d_in**-0.5, w.dtype), like=w)
        self.b = np.zeros_like(w, shape=(rank, d_out))

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, LowRankCache]:
        y, _ = linear(x, self.w)  # (..., d_out)
        z, linear_a = linear(x, self.a)  # (..., r)
        change, linear_b = linear(z, self.b)  # (..., d_out)
        change *= self.scale
        y += change
        return y, LowRankCache(linear_a, linear_b)

    def backward(self, dy: np.ndarray, cache: LowRankCache) -> tuple[np.ndarray, Parameters]:
        # y = x @ w + scale * (z @ b)
        dz, db, _ = linear_backward(dy, cache.linear_b)
        dz *= self.scale  # (..., r), here and not in dy: the thin arrays are less work
        db *= self.scale  # (r, d_out)
        # z = x @ a
        dx, da, _ = linear_backward(dz, cache.linear_a)  # (..., d_in), (d_in, r)
        # y = x @ w + ..., the second use of x; w is frozen and gets no gradient
        dx += (as_rows(dy) @ self.w.T).reshape(dx.shape)
        return dx, {"a": da, "b": db}

    def merged(self) -> np.ndarray:
        """The matrix that does the same: w + scale a b, (d_in, d_out)."""
        return self.w + self.scale * (self.a @ self.b)


def add_low_rank(
    model: GPT | TextEncoder, rank: int, alpha: float | None = None, rng: np.random.Generator | None = None
) -> None:
    """Freeze a model, and let every matrix of its blocks learn a change of low rank: those are its parameters now.

    Without an rng a is zero and learns nothing: for parameters that are loaded afterwards.

    Raises: TypeError or ValueError for a rank that is no integer from 1 to d_model, an alpha that is not above 0 and
    finite, or a model that has such changes already.
    """
    if low_rank_of(model) is not None:
        raise ValueError("add_low_rank: the model has changes of low rank already; merge_low_rank adds them to it")
    require_number("add_low_rank", "rank", rank, at_least=1, at_most=model.config.d_model, whole=True)
    changes = [(layer, name, LowRank(w, rank, alpha, rng)) for _, layer, name, w in matrices(model)]
    model.freeze()
    for layer, name, change in changes:
        setattr(layer, name, change)


def merge_low_rank(model: GPT | TextEncoder) -> None:
    """Add what was learned to the matrices: the model computes the same as before, and everything in it can learn."""
    for _, layer, name, w in list(matrices(model)):
        if isinstance(w, LowRank):
            setattr(layer, name, w.merged())
    model.unfreeze()


def low_rank_of(model: GPT | TextEncoder) -> tuple[int, float] | None:
    """Rank and alpha of a model's changes, None if it has none."""
    return next(((w.rank, w.alpha) for *_, w in matrices(model) if isinstance(w, LowRank)), None)


def matrices(model: GPT | TextEncoder) -> Iterator[tuple[str, Layer, str, Any]]:
    """Every matrix of the blocks, or the layer in its place: its dotted name, the layer that owns it, its name there,
    and itself."""
    for i, block in enumerate(model.blocks):
        for part, layer in vars(block).items():
            if isinstance(layer, (MultiHeadAttention, FeedForward)):
                for name, w in vars(layer).items():
                    if name.startswith("w_") and w is not None:
                        yield f"blocks.{i}.{part}.{name}", layer, name, w
