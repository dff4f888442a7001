"""Prefix matching, the score that finds induction heads (Chapter 39)."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for

CHAPTER = 39


def prefix_matching(weights: Array, N: int) -> Array:
    """The mean weight of the queries in the second half on the key after the earlier copy of their token."""
    return np.asarray(_on_key(weights, N, 1).mean(axis=-1))


def _on_key(weights: Array, N: int, shift: int) -> Array:
    """The weight of each query t of the second half on key t - N + shift; shift 0 is the earlier copy."""
    t = np.arange(N, 2 * N)
    return weights[:, t, t - N + shift]


@stands_in_for("prefix_matching")
def earlier_copy_itself(weights: Array, N: int) -> Array:
    """It uses key t - N, the earlier copy of the token, but the next token is at t - N + 1.

    Hides: it finds heads that look at equal tokens; such heads are as common as induction heads.
    """
    return np.asarray(_on_key(weights, N, 0).mean(axis=-1))


@stands_in_for("prefix_matching")
def last_query_left_out(weights: Array, N: int) -> Array:
    """The last query, t = 2N - 1, is left out: no token follows it, but its weights count too.

    Hides: with many queries, a single query changes little.
    """
    return np.asarray(_on_key(weights, N, 1)[:, :-1].mean(axis=-1))


@stands_in_for("prefix_matching")
def token_before_the_earlier_copy(weights: Array, N: int) -> Array:
    """It uses key t - N - 1, the token before the earlier copy, but the token after the copy is at t - N + 1.

    Hides: the shapes agree; for the first query the index is -1, the last key, which raises no error.
    """
    return np.asarray(_on_key(weights, N, -1).mean(axis=-1))


@stands_in_for("prefix_matching")
def sum_over_the_second_half(weights: Array, N: int) -> Array:
    """It returns the sum of the weights of the N queries instead of their mean: divide by N.

    Hides: the order of the heads is right; for N = 1 everything is right.
    """
    return np.asarray(_on_key(weights, N, 1).sum(axis=-1))


@stands_in_for("prefix_matching")
def divided_by_all_queries(weights: Array, N: int) -> Array:
    """The sum is divided by 2N, the number of all queries, but only the N queries of the second half count.

    Hides: the order of the heads is right, but a perfect head has the score 0.5.
    """
    return np.asarray(_on_key(weights, N, 1).sum(axis=-1) / np.asarray(2 * N, weights.dtype))


@stands_in_for("prefix_matching")
def queries_and_keys_exchanged(weights: Array, N: int) -> Array:
    """weights[:, key, query] exchanges the axes: queries are on the second axis, keys on the last.

    Hides: the shapes agree; with a causal mask almost all of these weights are zero.
    """
    return prefix_matching(weights.swapaxes(-1, -2), N)


@stands_in_for("prefix_matching")
def first_half_counted_too(weights: Array, N: int) -> Array:
    """It uses the first N queries and their next keys, but only tokens of the second half have an earlier copy.

    Hides: the shapes agree.
    """
    t = np.arange(N)
    return np.asarray(weights[:, t, t + 1].mean(axis=-1))


@stands_in_for("prefix_matching")
def whole_block_averaged(weights: Array, N: int) -> Array:
    """The mean is over all pairs of N queries and N keys, but only one key belongs to each query, on a diagonal.

    Hides: right for N = 1, and for a head whose weights are all equal.
    """
    return np.asarray(weights[:, N : 2 * N, 1 : N + 1].mean(axis=(1, 2)))


def _about_prefixes(rng: np.random.Generator) -> Questions:
    def weights(H: int, N: int, dtype: Any = np.float64) -> Array:
        w = np.tri(2 * N) * rng.random((H, 2 * N, 2 * N))
        return np.asarray(w / w.sum(axis=-1, keepdims=True)).astype(dtype)

    yield "a head that looks only at the key after the earlier copy, with weight 1", (
        np.eye(6, k=-2)[None] + np.eye(6)[None] * (np.arange(6) < 2), 3)
    yield "one random head, N = 2", (weights(1, 2), 2)
    yield "three heads, N = 4", (weights(3, 4), 4)
    yield "N = 1, with a query that looks at itself", (weights(2, 1), 1)
    yield "arrays of float32", (weights(2, 3, np.float32), 3)


OURS = {"prefix_matching": prefix_matching}
EXERCISES = (Exercise("prefix_matching", 19, quizzes={"prefix_matching": Quiz(prefix_matching, _about_prefixes)}),)
