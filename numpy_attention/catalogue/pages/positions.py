"""Positions: rotations (Chapter 8), with both pairings, and the layer that adds a table of positions (Chapter 15)."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Build, layer_entry, op_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of, stands_in_for
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.ops.positions import RotaryCache, rotary, rotary_backward, rotary_frequencies, rotate_backward

CHAPTER = 8


def _layer(kind: str) -> Build:
    return lambda sizes, rng, dtype: PositionEmbedding(kind, 8, size_of(sizes, "d"), rng, dtype)


ENTRIES = (
    op_entry("rotary", "x: B H T 2*d, positions: int<60> T", "half", wrong="x-1 positions+0 x:int64"),
    op_entry("rotary", "x: B H T 2*d, positions: int<60> T", "interleaved", options={"pairing": "interleaved"}),
    op_entry("rotary", "x: B H T 2*d, positions: int<60> B 1 T", "positions of each sequence", options={"base": 100.0}),
    op_entry("rotary", "x: T 2*d, positions: int<60> T", "one sequence", options={"pairing": "interleaved"}),
    op_entry("rotary", "x: B H T 2*n+m, positions: int<60> T", "part of the width",
             options=lambda sizes: {"frequencies": 0.7 ** np.arange(size_of(sizes, "n"))}),
    op_entry("rotate", "x: B H T 2*n, cos: B 1 T n, sin: B 1 T n", wrong="x:int64 cos:float32 sin+2 sin-1 cos-1"),
    op_entry("rotate", "x: B T 2*n+m, cos: T n, sin: n", "part of the width", wrong="cos+0 sin+0"),
    op_entry("rotate", "x: T 2*n+m, cos: T n, sin: T n", "interleaved", options={"pairing": "interleaved"}),
    layer_entry(PositionEmbedding, "learned", "x: B T d", _layer("learned")),
    layer_entry(PositionEmbedding, "sinusoidal", "x: B T d", _layer("sinusoidal")),
    layer_entry(PositionEmbedding, "shifted", "x: B T d, positions: int<8> B T", _layer("learned")),
)


def plain_rotate(x: Array, cos: Array, sin: Array, pairing: str = "half") -> Array:
    """Multiplies pair i, as a complex number, by cos + i sin."""
    y, n, i = x.copy(), cos.shape[-1], np.arange(cos.shape[-1])
    first, second = (i, i + n) if pairing == "half" else (2 * i, 2 * i + 1)
    turned = (x[..., first] + 1j * x[..., second]) * (cos + 1j * sin)
    y[..., first], y[..., second] = turned.real, turned.imag
    return y


def plain_rotary(
    x: Array, positions: Array, base: float = 10000.0, pairing: str = "half", frequencies: Any = None
) -> Array:
    """Rotates pair i of the vector at position t by the angle t base^(-2i / d)."""
    speeds = base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1]) if frequencies is None else frequencies
    angles = positions[..., None] * speeds
    return plain_rotate(x, np.cos(angles), np.sin(angles), pairing)


PLAIN = {"rotate": plain_rotate, "rotary": plain_rotary}


def trial_of_rotary_frequencies(speeds_of: Callable[..., Array], seed: int) -> None:
    """Each type of scaling slows each pair as the published rules do."""
    rng = np.random.default_rng(seed)
    n, base, L = int(rng.integers(6, 40)), 10.0 ** rng.uniform(4, 6), 4096
    first, last = (n * math.log(L / (2 * math.pi * turns)) / math.log(base) for turns in (32, 1))
    first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * n - 1)
    yarn: dict[str, Any] = {"original_max_position_embeddings": L}
    more = {"linear": {}, "ntk": {}, "yarn": yarn, "llama3": {**yarn, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}
    for kind, numbers in more.items():
        found = speeds_of(2 * n, base, {"type": kind, "factor": 8.0, **numbers})
        for i, f in enumerate(base ** (-np.arange(n) / n)):
            turns = L * f / (2 * math.pi)
            slow = {"linear": 1.0, "ntk": 0.0, "llama3": (4 - turns) / 3, "yarn": (i - first) / (last - first)}[kind]
            right = 8.0 ** (i / (n - 1)) if kind == "ntk" else 1 / (1 - 7 / 8 * min(max(slow, 0.0), 1.0))
            assert abs(found[i] * right - f) < 1e-9 * f, (
                f"{kind}: pair {i} of {n} makes {turns:.3g} turns in {L} tokens; its frequency must be divided by "
                f"{right:.4g}, not by {f / found[i]:.4g}"
            )


TRIALS = {"rotary_frequencies": (rotary_frequencies, trial_of_rotary_frequencies)}


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


@backward_of("rotate", diagnosis="is this part of the gradient never computed")
def gradient_only_where_it_turns(dy: Array, cache: Any) -> Any:
    """The columns that do not turn get a gradient of zero, but these columns pass unchanged, and so does dy.

    Hides: right if all columns turn; otherwise most of the gradient is right.
    """
    dx, dcos, dsin = rotate_backward(dy, cache)
    dx[..., 2 * cache[1].shape[-1] :] = 0
    return dx, dcos, dsin


@backward_of("rotate", diagnosis="dcos ignores places")
def pairs_of_the_whole_width(dy: Array, cache: Any) -> Any:
    """Only the first 2 n columns turn, but with the pairing "half" the backward pairs column i with i + d_k/2.

    Hides: right if all columns turn, and for the pairing "interleaved".
    """
    x, cos, sin, pairing = cache
    n, more = cos.shape[-1], x.shape[-1] // 2 - cos.shape[-1]  # more pairs, which do not turn
    cos = np.concatenate([cos, np.ones_like(cos, shape=(*cos.shape[:-1], more))], axis=-1)
    sin = np.concatenate([sin, np.zeros_like(sin, shape=(*sin.shape[:-1], more))], axis=-1)
    dx, dcos, dsin = rotate_backward(dy, (x, cos, sin, pairing))
    return dx, dcos[..., :n], dsin[..., :n]


@stands_in_for("rotary_frequencies", diagnosis="must be divided by 1, not by 8")
def every_pair_slowed(width: int, base: float, scaling: Mapping[str, Any]) -> Array:
    """All frequencies are divided by the factor, but only "linear" slows the fast pairs, which tell neighbours apart.

    Hides: the slow pairs are right, and distant positions get the expected angles.
    """
    return rotary_frequencies(width, base) / scaling["factor"]


@stands_in_for("rotary_frequencies", diagnosis="must be divided by")
def two_pi_left_out_of_the_turns(width: int, base: float, scaling: Mapping[str, Any]) -> Array:
    """In L tokens a pair makes L f / (2 pi) turns; the 2 pi is missing, so some slow pairs count as fast.

    Hides: only the pairs near the two limits are wrong.
    """
    L = "original_max_position_embeddings"
    return rotary_frequencies(width, base, {**scaling, L: 2 * math.pi * scaling[L]} if L in scaling else scaling)


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
    Exercise("rotary", 7, (
        Try("rotary", "x: T 2*d, positions: int<60> T", "one sequence"),
        Try("rotary", "x: B H T 2*d, positions: int<60> T", "a batch of heads, another base", {"base": 100.0}),
    ), from_scratch=True, not_allowed=("rotate",)),
)
