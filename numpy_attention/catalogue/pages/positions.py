"""Positions: rotary (Chapter 8) with both pairings, and the layer that adds a table of positions (Chapter 15)."""

import math
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Build, layer_entry, op_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.ops.positions import RotaryCache, rotary, rotary_backward

CHAPTER = 8


def _layer(kind: str) -> Build:
    return lambda sizes, rng, dtype: PositionEmbedding(kind, 8, size_of(sizes, "d"), rng, dtype)


ENTRIES = (
    op_entry("rotary", "x: B H T 2*d, positions: int<60> T", "half", wrong="x-1 positions+0 x:int64"),
    op_entry("rotary", "x: B H T 2*d, positions: int<60> T", "interleaved", options={"pairing": "interleaved"}),
    op_entry(
        "rotary", "x: B H T 2*d, positions: int<60> B 1 T", "positions of each sequence", options={"base": 100.0}
    ),
    op_entry("rotary", "x: T 2*d, positions: int<60> T", "one sequence", options={"pairing": "interleaved"}),
    layer_entry(PositionEmbedding, "learned", "x: B T d", _layer("learned")),
    layer_entry(PositionEmbedding, "sinusoidal", "x: B T d", _layer("sinusoidal")),
    layer_entry(PositionEmbedding, "shifted", "x: B T d, positions: int<8> B T", _layer("learned")),
)


def plain_rotary(x: Array, positions: Array, base: float = 10000.0, pairing: str = "half") -> Array:
    """Rotates pair i of the vector at position t by the angle t base^(-2i / d)."""
    d, y = x.shape[-1], np.empty(x.shape)
    places = np.broadcast_to(positions, x.shape[:-1])
    for place in np.ndindex(places.shape):
        for i in range(d // 2):
            first, second = (i, i + d // 2) if pairing == "half" else (2 * i, 2 * i + 1)
            angle, a, b = places[place] * base ** (-2 * i / d), x[place][first], x[place][second]
            y[place][first] = a * math.cos(angle) - b * math.sin(angle)
            y[place][second] = a * math.sin(angle) + b * math.cos(angle)
    return y


PLAIN = {"rotary": plain_rotary}


@backward_of("rotary", diagnosis="the forward applied to dy")
def turned_forward_again(dy: Array, cache: RotaryCache) -> Array:
    """The gradient is rotated by the angle instead of the negative angle.

    Hides: norms agree, and position 0 is right.
    """
    return rotary_backward(dy, cache._replace(sin=-cache.sin))


@backward_of("rotary", diagnosis="is it rotated by wrong angles, or in wrong pairs of coordinates")
def pairings_mixed(dy: Array, cache: RotaryCache) -> Array:
    """The forward and the backward pair the coordinates in different ways.

    Hides: norms agree, and for d_k = 2 both pairings are equal.
    """
    other = "interleaved" if cache.pairing == "half" else "half"
    return rotary_backward(dy, cache._replace(pairing=other))


@op_of("rotary", rotary_backward)
def neighbours_paired(x: Array, positions: Array, base: float = 10000.0) -> Any:
    """Columns 2i and 2i + 1 are rotated together, but this exercise pairs column i with i + d_k/2.

    Hides: lengths agree, scores depend only on distances; right for d_k = 2, and some models use this pairing.
    """
    return rotary(x, positions, base, "interleaved")


@op_of("rotary", rotary_backward)
def turned_the_other_way(x: Array, positions: Array, base: float = 10000.0) -> Any:
    """The sign of the sine is wrong: every vector is rotated by the angle -t f instead of t f.

    Hides: lengths agree; all scores agree too if queries and keys have the same mistake.
    """
    return rotary(x, -positions, base)


@op_of("rotary", rotary_backward)
def two_missing_in_the_frequency(x: Array, positions: Array, base: float = 10000.0) -> Any:
    """The frequencies are base^(-i / d_k) instead of base^(-2i / d_k), so all pairs except the first rotate too fast.

    Hides: lengths agree, and the first pair is right; for d_k = 2 everything is right.
    """
    return rotary(x, positions, base**0.5)


EXERCISES = (
    Exercise(
        "rotary", 7,
        (
            Try("rotary", "x: T 2*d, positions: int<60> T", "one sequence"),
            Try("rotary", "x: B H T 2*d, positions: int<60> T", "a batch of heads, another base", {"base": 100.0}),
        ),
        from_scratch=True,
    ),
)
