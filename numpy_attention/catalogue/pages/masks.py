"""The causal mask (Chapter 4). A mask has no gradient, so a trial compares it with the definition."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.catalogue.entry import Array, size_of
from numpy_attention.catalogue.exercise import Exercise, Trial, Try
from numpy_attention.catalogue.mistake import stands_in_for
from numpy_attention.gradcheck.spec import draw_sizes
from numpy_attention.ops.masks import causal_mask

CHAPTER = 4


def trial_of_causal_mask(make: Callable[..., Array], seed: int, square: bool = False) -> None:
    """Query i sees key j if j <= i + T_k - T_q: the last query and the last key have the same position."""
    sizes = draw_sizes("x: T_q T_k", np.random.default_rng(seed))
    T_q, T_k = size_of(sizes, "T_q"), size_of(sizes, "T_q" if square else "T_k")
    if seed == 0:  # first the case of text generation: new queries, and a KV cache with earlier keys
        T_q, T_k = min(T_q, T_k), max(T_q, T_k)
    mask = np.asarray(make(T_q, T_k))
    assert mask.shape == (T_q, T_k), f"causal_mask({T_q}, {T_k}) has shape {mask.shape}, expected {(T_q, T_k)}"
    assert mask.dtype == bool, f"causal_mask({T_q}, {T_k}) has dtype {mask.dtype}; a mask has dtype bool"
    for i in range(T_q):
        for j in range(T_k):
            visible = j <= i + T_k - T_q
            assert mask[i, j] == visible, (
                f"causal_mask({T_q}, {T_k})[{i}, {j}] is {bool(mask[i, j])}: query {i} of {T_q} has position "
                f"{i + T_k - T_q} of {T_k}, so key {j} must be {'visible' if visible else 'hidden'}"
            )


TRIALS = {"causal_mask": (causal_mask, trial_of_causal_mask)}


@stands_in_for("causal_mask", diagnosis="has position 2 of 5, so key 0 must be visible")
def other_side(T_q: int, T_k: int) -> Array:
    """Every position sees the later positions instead of the earlier ones.

    Hides: the loss falls, even faster than it should: the model reads the answer.
    """
    return np.arange(T_k) >= np.arange(T_q)[:, None] + (T_k - T_q)


@stands_in_for("causal_mask", diagnosis="must be hidden")
def one_too_far(T_q: int, T_k: int) -> Array:
    """Every position sees one key too many: the token that it must predict.

    Hides: almost all of the triangle is right, and the loss falls faster than it should.
    """
    return np.arange(T_k) <= np.arange(T_q)[:, None] + (T_k - T_q) + 1


@stands_in_for("causal_mask", diagnosis="has position 2 of 5, so key 1 must be visible")
def aligned_at_the_start(T_q: int, T_k: int) -> Array:
    """Query i sees keys 0 to i, but the queries are the last T_q of T_k positions.

    Hides: right if T_q = T_k, which is always true in training and never with a KV cache.
    """
    return np.arange(T_k) <= np.arange(T_q)[:, None]


def _causal_softmax(x: Array, mask: Array) -> Any:
    y, _ = ops.softmax(np.where(mask, x, -np.inf))
    return y, y


def _causal_softmax_backward(dy: Array, cache: Array) -> Array:
    y = cache
    dx: Array = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    return dx


def outcome_of_a_mask(make: Callable[[int, int], Array]) -> list[Array]:
    """The causal masks for some lengths."""
    return [np.asarray(make(*lengths)) for lengths in ((3, 3), (2, 5), (4, 2), (1, 4))]


OURS = {"causal_softmax": _causal_softmax, "causal_softmax_backward": _causal_softmax_backward}
EXERCISES = (
    Exercise("causal_mask", 5, (
        Try("causal_softmax", "x: B T_q T_k, mask: bool T_q T_k"),
    ), quizzes={"causal_mask": Trial(trial_of_causal_mask, outcome_of_a_mask)}),
)
