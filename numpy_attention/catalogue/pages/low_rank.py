"""Changes of low rank (Chapter 37): the layer alone, in attention, in feed-forward; the start of training."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, layer_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import method_of, stands_in_for
from numpy_attention.catalogue.pages.multi_head_attention import X_MASK, width
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.feed_forward import FeedForward
from numpy_attention.layers.multi_head_attention import MultiHeadAttention
from numpy_attention.ops.linear import linear_backward
from numpy_attention.pretrained.low_rank import LowRank
from numpy_attention.training.optimizers import Adam

CHAPTER = 37


def _changed(layer: Any, rng: np.random.Generator) -> Any:
    """Replaces each matrix of the layer by a LowRank layer."""
    for name, w in list(vars(layer).items()):
        if name.startswith("w_") and w is not None:
            setattr(layer, name, LowRank(w, 2, 3.0, rng))
    return layer


def _of_rank(rank: int, alpha: float | None) -> Callable[..., Any]:
    def build(cls: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
        return cls(rng.standard_normal((size_of(sizes, "d_in"), 4)).astype(dtype), rank, alpha, rng)

    return build


def _entry(variant: str, spec: str, rank: int, alpha: float | None, wrong: str = "") -> Entry:
    return layer_entry(LowRank, variant, spec, partial(_of_rank(rank, alpha), LowRank), wrong=wrong)


def _attention(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> MultiHeadAttention:
    options: dict[str, Any] = {"num_kv_heads": 1, "bias": True, "rotary_base": 100.0}
    return _changed(MultiHeadAttention(width(sizes), size_of(sizes, "H"), rng, dtype=dtype, **options), rng)


def _feed_forward(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> FeedForward:
    return _changed(FeedForward(size_of(sizes, "d"), 5, rng, "swiglu", dtype=dtype), rng)


ENTRIES = (
    _entry("", "x: ... d_in", 2, 3.0, wrong="x-1 x:int64 w+0 w:float32"),
    _entry("rank 1", "x: B T d_in", 1, None),
    _entry("a rank above both widths", "x: B d_in", 7, 1.0),
    layer_entry(
        MultiHeadAttention, "low rank, shared keys, rotary, biases", X_MASK, _attention,
        fixed={"B": 2, "H": 2, "d_k": 4},
    ),
    layer_entry(FeedForward, "low rank, swiglu, biases", "x: B T d", _feed_forward),
)


def plain_low_rank(layer: LowRank, x: Array, w: Array, a: Array, b: Array) -> Array:
    """x times the sum of the matrix and its change."""
    return np.einsum("...i,ij->...j", x, w + layer.alpha / len(b) * np.einsum("ir,rj->ij", a, b))


PLAIN = {"LowRank": plain_low_rank}


def trial_of_low_rank_start(start: Callable[..., LowRank], seed: int, look_first: bool = True) -> None:
    """Checks that a new change of low rank does not change y, and learns a change of rank 1 in 200 steps."""
    rng = np.random.default_rng(seed)
    w, x = rng.standard_normal((5, 4)), rng.standard_normal((20, 5))
    goal = x @ (w + np.outer(rng.standard_normal(5), rng.standard_normal(4)))
    layer = start(w.copy(), 2, rng)
    before = layer.forward(x)[0] - goal
    off = float(np.max(np.abs(before + goal - x @ w)))
    assert off < 1e-12 or not look_first, (
        f"before the first step y differs from x w by {off:.2g}: training does not start from the pretrained model"
    )
    optimizer = Adam(layer.parameters(), learning_rate=0.05)
    for _ in range(200):
        y, cache = layer.forward(x)
        optimizer.step(layer.backward(y - goal, cache)[1])
    left = float(np.sum((layer.forward(x)[0] - goal) ** 2) / np.sum(before**2))
    assert left < 0.01, f"after 200 steps {left:.0%} of the squared error is left: are all gradients zero?"


def low_rank_start(w: Array, rank: int, rng: np.random.Generator) -> LowRank:
    """The right start: a is random, b is zero."""
    return LowRank(w, rank, rng=rng)


TRIALS = {"low_rank_start": (low_rank_start, trial_of_low_rank_start)}


@method_of("LowRank", "backward", diagnosis="da, db: right up to the constant factor 0.666667")
def change_not_scaled(self: LowRank, dy: Array, cache: Any) -> Any:
    """The forward scales the change by alpha / r, the backward does not: da, db and part of dx lack the factor.

    Hides: right if alpha = r; else the direction of da and db is right, and the learning rate absorbs the factor.
    """
    dz, db, _ = linear_backward(dy, cache.linear_b)
    dx, da, _ = linear_backward(dz, cache.linear_a)
    return dx + dy @ self.w.T, {"a": da, "b": db}


@method_of("LowRank", "backward", diagnosis="db: right up to the constant factor 0.666667")
def scale_left_out_of_db(self: LowRank, dy: Array, cache: Any) -> Any:
    """The factor alpha / r is in dz, and so in da and dx, but not in db, which uses dy without the factor.

    Hides: right if alpha = r; else Adam, which divides by the size of a gradient, takes the same steps.
    """
    dx, grads = LowRank.backward(self, dy, cache)
    return dx, {"a": grads["a"], "b": grads["b"] / self.scale}


@method_of("LowRank", "backward", diagnosis="the path through `change` is missing")
def change_left_out_of_dx(self: LowRank, dy: Array, cache: Any) -> Any:
    """dx = dy w^T, as without the change: the path through a and b is missing.

    Hides: the gradients of a and b are right; at the first step b is zero, and dx is right too.
    """
    dx, grads = LowRank.backward(self, dy, cache)
    dz = self.scale * linear_backward(dy, cache.linear_b)[0]
    return dx - dz @ self.a.T, grads


@stands_in_for("low_rank_start", diagnosis="are all gradients zero?")
def both_sides_at_zero(w: Array, rank: int, rng: np.random.Generator) -> LowRank:
    """a starts at zero like b, so z = x a and dz = dy b^T are zero, both gradients are zero, and nothing learns.

    Hides: the gradients match the formula, so every check of gradients passes.
    """
    return LowRank(w, rank)


@stands_in_for("low_rank_start", diagnosis="training does not start from the pretrained model")
def both_sides_at_random(w: Array, rank: int, rng: np.random.Generator) -> LowRank:
    """b starts at random like a, so training starts from a disturbed model instead of the pretrained one.

    Hides: it trains anyway, and after a while the disturbance is gone.
    """
    layer = LowRank(w, rank, rng=rng)
    layer.b[...] = rng.standard_normal(layer.b.shape) * rank**-0.5
    return layer


OURS = {"LowRank": LowRank}
EXERCISES = (
    Exercise("low_rank", 18, (
        Try("LowRank", "x: ... d_in", "rank 2", build=_of_rank(2, 3.0)),
        Try("LowRank", "x: B T d_in", "rank 1", build=_of_rank(1, 0.5)),
    )),
)
