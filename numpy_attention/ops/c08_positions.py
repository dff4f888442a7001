"""Chapter 8. Where am I? Positions

The attention of Chapter 6 treats its keys as a set. If the words are shuffled, the outputs are shuffled with them,
because the score of a query with a key depends on their contents, not on their positions. So the order must be added.
Four ways are in use. One adds a learned vector for each position (Chapter 15, continued). This chapter has the other
three, which have nothing to learn.

Sinusoidal. Add a fixed vector that depends only on the position t, with frequencies from fast to slow:

    PE_t(2i) = sin(t f_i)     PE_t(2i+1) = cos(t f_i)     f_i = 10000^(-2i / d_model)

A pair (sin, cos) is a point on a circle. Moving k positions forward turns the point by the angle k f_i:
PE_(t+k) = R_k PE_t with a rotation R_k that does not depend on t. PE is a constant, so it has no backward.

Rotary. Do not add a vector. Turn each query and key, two coordinates at a time, by an angle that grows with its
position t:

    y_1 = x_1 cos(a) - x_2 sin(a)     y_2 = x_2 cos(a) + x_1 sin(a)     a = t f_i

Let R(a) be the matrix that turns a pair by the angle a. Then R(a)^T R(b) = R(b - a): the score of query t with key j
depends on j - t only. By Chapter 1 the gradient of y = R x is dx = R^T dy, and R^T turns back:

    dx_1 = dy_1 cos(a) + dy_2 sin(a)     dx_2 = dy_2 cos(a) - dy_1 sin(a)

Models differ in which two coordinates form a pair: "half" pairs i with i + d_k / 2, "interleaved" pairs 2i with 2i + 1.
A model with the wrong pairing raises no error, and its vectors keep their norms. Only its output is wrong.

Some models turn only a part of each vector, so that the rest can compare contents at any distance. With n < d_k / 2
frequencies, only the first 2 n columns form pairs and turn. The other columns pass unchanged, and so do their
gradients.

ALiBi. Do not change the vectors. Lower each score by the distance times a slope; each head has a different slope.
"""

import math
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import (
    broadcasts_to,
    dtype_error,
    require_array,
    require_choice,
    require_cotangent,
    require_float,
    require_number,
    require_size,
    shape_error,
)
from numpy_attention.ops.c04_masks import query_and_key_lengths
from numpy_attention.shapes import check_shapes

SHAPES = "x: ... T d_k"
PAIRINGS = ("half", "interleaved")


def sinusoidal_positions(length: int, d_model: int, dtype: type | np.dtype = np.float32) -> np.ndarray:
    """The table of sines and cosines that the original transformer adds to its embeddings.

    Formula: PE_t(2i) = sin(t 10000^(-2i / d_model)), PE_t(2i+1) = cos(t 10000^(-2i / d_model))

    Shapes: -> (length, d_model); if d_model is odd, the last column is a sine without its cosine

    Units: angles in radians, positions counted from 0.

    Raises: ValueError for a negative length or a d_model below 1.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.5.

    >>> sinusoidal_positions(2, 3, dtype=np.float64).round(4).tolist()
    [[0.0, 1.0, 0.0], [0.8415, 0.5403, 0.0022]]
    """
    require_size("sinusoidal_positions", "length", length, at_least=0)
    require_size("sinusoidal_positions", "d_model", d_model)
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # (ceil(d_model / 2),)
    angles = np.arange(length)[:, None] * frequencies  # (length, ceil(d_model / 2))
    table = np.empty((length, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table.astype(dtype)


class RotaryCache(NamedTuple):
    """The cosines and sines of the angles (position times frequency), and the pairing of the coordinates."""

    cos: np.ndarray  # broadcastable to (..., T, n), in the dtype of x
    sin: np.ndarray
    pairing: str
    shape: tuple[int, ...]  # (..., T, d_k)


def rotary(
    x: np.ndarray, positions: np.ndarray, base: float = 10000.0, pairing: str = "half",
    frequencies: np.ndarray | None = None,
) -> tuple[np.ndarray, RotaryCache]:
    """Turn the coordinates of each vector, pair by pair, by an angle that grows with the position.

    Formula: (y_1, y_2) = R(t f_i) (x_1, x_2), f_i = base^(-2i / d_k) unless given

    Shapes: x (..., T, d_k), positions broadcastable to (..., T), frequencies (n,) with 2 n <= d_k -> y as x. Without
    frequencies d_k must be even. `turn` explains pairing.

    Units: positions in tokens, angles in radians, frequencies in radians per token.

    Raises: ValueError for odd d_k, an unknown pairing, or positions or frequencies that do not fit; TypeError for an x
    or frequencies that are not arrays of floats, or positions that are not numbers.

    Source: Su et al., RoFormer (2021), section 3.2.2, equations 14 and 15; "half" is as in the model GPT-NeoX.

    >>> rotary(np.array([[1.0, 0.0]]), np.array([1]))[0].round(4)
    array([[0.5403, 0.8415]])
    """
    require_choice("rotary", "pairing", pairing, PAIRINGS, '"half" or "interleaved"')
    cos, sin = rotary_tables(x, positions, base, frequencies)
    return turn(x, cos, sin, pairing), RotaryCache(cos, sin, pairing, x.shape)


def rotary_backward(dy: np.ndarray, cache: RotaryCache) -> np.ndarray:
    """Gradient of `rotary`: turn dy back by the same angles.

    Shapes: dy as y -> dx as x
    """
    cos, sin, pairing, shape = cache
    require_cotangent("rotary_backward", "dy", dy, shape, cos.dtype)
    # y = R(a) x, and R(a)^T = R(-a)
    return turn(dy, cos, -sin, pairing)


def turn(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairing: str) -> np.ndarray:
    """Turn the first 2 n columns of each vector, pair by pair; the other columns pass unchanged.

    Shapes: x (..., T, d_k), cos and sin broadcastable to (..., T, n) with 2 n <= d_k -> y as x.
    pairing "half": (x_1, x_2) = columns (i, i + n); "interleaved": columns (2i, 2i + 1).
    """
    y = x.copy()
    (x_1, x_2), (y_1, y_2) = pairs_of(x, cos, pairing), pairs_of(y, cos, pairing)  # (..., T, n) each, views
    y_1[...] = x_1 * cos - x_2 * sin
    y_2[...] = x_2 * cos + x_1 * sin
    return y


def pairs_of(x: np.ndarray, cos: np.ndarray, pairing: str) -> tuple[np.ndarray, np.ndarray]:
    """The two coordinates of all pairs, as views of x."""
    n = cos.shape[-1]
    return (x[..., :n], x[..., n : 2 * n]) if pairing == "half" else (x[..., : 2 * n : 2], x[..., 1 : 2 * n : 2])


def rotary_tables(
    x: np.ndarray, positions: np.ndarray, base: float = 10000.0, frequencies: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and sines of the angles t f_i with which `rotary` turns x.

    Shapes: x, positions and frequencies as in `rotary` -> cos and sin, broadcastable to (..., T, n), in the dtype of x
    """
    _check_rotary(x, positions, base, frequencies)
    if frequencies is None:
        frequencies = float(base) ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])  # (d_k / 2,)
    frequencies = np.asarray(frequencies, like=positions)
    angles = positions[..., None] * frequencies  # (..., T, n), in float64: float32 is not exact enough
    cos = np.asarray(np.cos(angles).astype(x.dtype), like=x)
    sin = np.asarray(np.sin(angles).astype(x.dtype), like=x)
    return cos, sin


def alibi_slopes(num_heads: int) -> np.ndarray:
    """How strongly each head prefers near keys: slopes in a geometric sequence.

    Formula: 2^(-8 h / H) for h = 1 ... H when H is a power of two. Otherwise let P be the next lower power of two:
    the P slopes of P heads, then the first, third, fifth ... slope of 2 P heads, until there are H.

    Shapes: -> (num_heads,)

    Units: nats (natural logarithms) per token.

    Raises: ValueError for fewer than one head.

    Source: Press, Smith, Lewis, Train Short, Test Long (2022), section 3; other numbers of heads: the published code.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    require_size("alibi_slopes", "num_heads", num_heads)
    lower = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, lower + 1) / lower)
    between = 2.0 ** (-8.0 * np.arange(1, 2 * lower, 2) / (2 * lower))
    return np.concatenate([slopes, between[: num_heads - lower]])


def alibi_bias(num_heads: int, T_q: int, T_k: int | None = None, dtype: type | np.dtype = np.float32) -> np.ndarray:
    """The bias that lowers each score in proportion to the distance between query and key.

    Formula: bias_hij = -slope_h |i + T_k - T_q - j|: the last query and the last key have the same position

    Shapes: -> (num_heads, T_q, T_k); T_k defaults to T_q. Pass it as `bias=` to attention.

    Units: nats.

    Raises: ValueError for fewer than one head or a negative length.

    Source: Press, Smith, Lewis, Train Short, Test Long (2022), section 3.

    >>> alibi_bias(1, 3).tolist()[0][2]
    [-0.0078125, -0.00390625, 0.0]
    """
    require_size("alibi_bias", "num_heads", num_heads)
    T_q, T_k = query_and_key_lengths("alibi_bias", T_q, T_k)
    distance = np.abs(np.arange(T_q)[:, None] + (T_k - T_q) - np.arange(T_k))  # (T_q, T_k)
    return (alibi_slopes(num_heads)[:, None, None] * -distance).astype(dtype)


def _check_rotary(x: np.ndarray, positions: np.ndarray, base: float, frequencies: np.ndarray | None) -> None:
    check_shapes("rotary", SHAPES, x=x)
    if x.shape[-1] % 2 and frequencies is None:
        raise shape_error("rotary", "x", "(..., T, d_k) with even d_k", x.shape, "coordinates are turned in pairs")
    require_number("rotary", "base", base, above=0)
    if frequencies is not None:
        require_float("rotary", frequencies=frequencies)
        if frequencies.ndim != 1 or 2 * len(frequencies) > x.shape[-1]:
            expected = f"(n,) with 2 n <= d_k = {x.shape[-1]}"
            raise shape_error("rotary", "frequencies", expected, frequencies.shape, "one for each pair of columns")
    require_array("rotary", "positions", positions, "an array of numbers")
    if positions.dtype.kind not in "iuf":
        raise dtype_error("rotary", "positions", "an array of numbers", positions.dtype, "np.arange(T)?")
    if positions.ndim == 0 or not broadcasts_to(positions.shape, x.shape[:-1]):
        raise shape_error("rotary", "positions", f"broadcastable to (..., T) = {x.shape[:-1]}", positions.shape)
