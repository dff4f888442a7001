"""Chapter 37. Low rank: fine-tuning with few parameters

A pretrained matrix is already nearly right for a new task. It needs to change along only a few directions. So the
change is learned as a product of two thin matrices, a and b, and the matrix w itself stays fixed:

    x ----------> @ w (d_in, d_out), frozen ---------> + --> y          y = x w + scale (x a) b
    |                                                  ^
    +--> @ a (d_in, r) --> z --> @ b (r, d_out) --> * scale             scale = alpha / r

A matrix of 576 x 1,536 has 884,736 parameters. With r = 8 only 8 (576 + 1,536) = 16,896 parameters are learned. This
layer replaces the matrix in a block (Chapter 14, appendix); nothing else in the block changes. The backward uses the
backward of Chapter 1 three times. x is used twice in the forward, so its two gradients add:

    db = scale z^T dy      dz = scale dy b^T      da = x^T dz      dx = dy w^T + dz a^T

One large product is missing: dw = x^T dy. It is not needed, because w is frozen. A full step has three products of this
size: y = x w, dy w^T and dw. So a third of the step is saved. The optimizer keeps moments for a and b only.

b starts at zero, so the first step starts from exactly the pretrained model. a starts at random: if a were zero too,
then z = 0 and dz = 0, and neither a nor b would ever get a gradient. With a fixed alpha, the factor scale keeps the
change at about the same size when r changes.

After training, the change can be added to the matrix: w + scale a b. Then the model is as fast as before.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.beyond.c53_experts import Experts
from numpy_attention.errors import require_float, require_number, require_size, shape_error
from numpy_attention.layers.c13_layer import Layer, Parameters, normal
from numpy_attention.layers.c17_multi_head_attention import MultiHeadAttention
from numpy_attention.layers.c18_feed_forward import FeedForward
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.ops.c01_linear import LinearCache, linear, linear_backward
from numpy_attention.ops.c01a_sums import as_rows


class LowRankCache(NamedTuple):
    """The arrays that backward needs: x and a, z and b."""

    linear_a: LinearCache
    linear_b: LinearCache


class LowRank(Layer):
    """y = x w + (alpha / r) (x a) b with w frozen: a layer that replaces a matrix w and adds a change of rank r.

    The default of `alpha` is 2 r. a is drawn with standard deviation 1 / sqrt(d_in), b is zero. Without an rng, a is
    zero too: its values are loaded later.

    Shapes: x (..., d_in) -> y (..., d_out).

    Raises: ValueError for a rank that is not an integer >= 1, or an alpha that is not positive and finite; TypeError
    for a w that is not an array of floats.

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
        dz *= self.scale  # (..., r); scaling the thin arrays is less work than scaling dy
        db *= self.scale  # (r, d_out)
        # z = x @ a
        dx, da, _ = linear_backward(dz, cache.linear_a)  # (..., d_in), (d_in, r)
        # y = x @ w + ..., the second use of x; w is frozen and gets no gradient
        dx += (as_rows(dy) @ self.w.T).reshape(dx.shape)
        return dx, {"a": da, "b": db}

    def merged(self) -> np.ndarray:
        """One matrix that gives the same y: w + scale a b, (d_in, d_out)."""
        return self.w + self.scale * (self.a @ self.b)


def add_low_rank(
    model: GPT | TextEncoder, rank: int, alpha: float | None = None, rng: np.random.Generator | None = None
) -> None:
    """Freeze a model, and give every matrix of its blocks a low-rank change. Then only these changes are parameters.

    Without an rng, a is zero and learns nothing. Use this for parameters that are loaded afterwards.

    Raises: TypeError or ValueError for a rank that is not an integer from 1 to d_model, an alpha that is not positive
    and finite, or a model that already has low-rank changes.
    """
    if low_rank_of(model) is not None:
        raise ValueError("add_low_rank: the model already has low-rank changes; call merge_low_rank first")
    require_number("add_low_rank", "rank", rank, at_least=1, at_most=model.config.d_model, whole=True)
    changes = [(layer, name, LowRank(w, rank, alpha, rng)) for _, layer, name, w in matrices(model)]
    model.freeze()
    for layer, name, change in changes:
        setattr(layer, name, change)


def merge_low_rank(model: GPT | TextEncoder) -> None:
    """Add the learned changes to the matrices. The model computes the same as before, and all parameters can learn."""
    for _, layer, name, w in list(matrices(model)):
        if isinstance(w, LowRank):
            setattr(layer, name, w.merged())
    model.unfreeze()


def low_rank_of(model: GPT | TextEncoder) -> tuple[int, float] | None:
    """Rank and alpha of a model's changes; None for a model without changes."""
    return next(((w.rank, w.alpha) for *_, w in matrices(model) if isinstance(w, LowRank)), None)


def matrices(model: GPT | TextEncoder) -> Iterator[tuple[str, Layer, str, Any]]:
    """Every matrix of the blocks, or the LowRank layer that replaces it, as a tuple: its dotted name, the layer that
    owns it, its name in that layer, and the matrix itself."""
    for i, block in enumerate(model.blocks):
        experts = getattr(block.feed_forward, "experts", ())
        parts = vars(block) | {f"feed_forward.experts.{e}": one for e, one in enumerate(experts)}
        for part, layer in parts.items():
            if isinstance(layer, (MultiHeadAttention, FeedForward, Experts)):
                for name, w in vars(layer).items():
                    if name.startswith("w_") and w is not None:
                        yield f"blocks.{i}.{part}.{name}", layer, name, w
