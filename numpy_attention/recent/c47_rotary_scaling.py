"""Chapter 47. Rotary positions for longer texts

Rotary positions (Chapter 8) turn pair i by the angle t f_i at position t. In training texts of L tokens, pair i makes
L f_i / (2 pi) turns. A slow pair makes less than one turn, so after position L its angles are new to the model. For
texts of s L tokens, we lower the frequencies:

    f_i' = k_i f_i + (1 - k_i) f_i / s          k_i is the share of f_i that remains

"linear": k_i = 0, so position s t has the angles of position t, but the angles of neighbours differ less. "llama3": k_i
grows linearly with the number of turns, from 0 at a lower limit to 1 at an upper limit. "yarn": k_i falls linearly with
i, from 1 at the pair that makes 32 turns to 0 at the pair that makes one turn. "ntk": a larger base, for n pairs
f_i' = f_i s^(-i / (n - 1)): the first pair keeps its frequency, and the last pair gets f_i / s. YaRN also multiplies
the rotated columns of q and k by a number above 1 (`yarn_temperature`), because in longer texts a softmax spreads its
weight over more keys.

Some models turn only the first columns of a head; then the other columns compare contents at any distance.

Frequencies do not learn, and each pair is turned and made longer by constants. So the backward is that of
`rotary` with the same tables: y = c R x gives dx = c R^T dy.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.errors import dtype_error, require_choice, require_number, require_size, value_error
from numpy_attention.ops.c08_positions import PAIRINGS, SHAPES, RotaryCache, rotary_backward, rotary_tables, turn
from numpy_attention.shapes import check_shapes

TOKENS = "original_max_position_embeddings"
SCALINGS: dict[str, dict[str, float | None]] = {  # the numbers of each type and their default values
    "linear": {}, "ntk": {}, "llama3": {TOKENS: None, "low_freq_factor": None, "high_freq_factor": None},
    "yarn": {TOKENS: None, "beta_slow": 1.0, "beta_fast": 32.0, "truncate": True},
}
ABOVE = {"high_freq_factor": "low_freq_factor", "beta_fast": "beta_slow"}  # the first must be above the second


def rotary_frequencies(width: int, base: float = 10000.0, scaling: Mapping[str, Any] | None = None) -> np.ndarray:
    """The speed of each pair of columns, from fast to slow; with `scaling`, slower for texts longer than in training.

    Formula: f_i = base^(-2i / width), or f_i' from the head of this chapter, with s = scaling["factor"]

    Shapes: -> (width / 2,) of float64. scaling is a dict: type (or rope_type), factor, and the other numbers of this
    type. "linear", "llama3" and "yarn" are as rope_scaling in a model's config.json. transformers has no "ntk": its
    type "dynamic" uses this formula, with a factor that grows with the text. Its types "dynamic", "longrope" and
    "proportional" are not here.

    Units: radians per token; low_freq_factor, high_freq_factor, beta_slow and beta_fast are numbers of turns in a text
    of original_max_position_embeddings tokens.

    Raises: ValueError for an odd width or an invalid scaling; TypeError for a scaling that is not a dict.

    Source: Su et al., RoFormer (2021), section 3.2.2; linear: Chen et al., Extending Context Window of Large Language
    Models via Positional Interpolation (2023); ntk and yarn: Peng et al., YaRN (2023), section 3, and the published
    code, which lets k fall with i; llama3: the published code of Llama 3.1 (2024).

    >>> rotary_frequencies(4, base=100.0), rotary_frequencies(4, 100.0, {"type": "ntk", "factor": 8.0})
    (array([1. , 0.1]), array([1.    , 0.0125]))
    """
    kind, numbers = _check_frequencies(width, base, {"type": "linear", "factor": 1.0} if scaling is None else scaling)
    s, n = numbers["factor"], width // 2
    i, keep = np.arange(n), np.zeros(n)
    f = float(base) ** (-i / n)
    if kind == "ntk":
        return f * s ** (-i / max(n - 1, 1))
    if kind == "llama3":
        low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
        keep = np.clip((numbers[TOKENS] * f / (2 * math.pi) - low) / (high - low), 0, 1)
    if kind == "yarn":
        # L base^(-i / n) = 2 pi turns, solved for i
        turns = np.array([numbers["beta_fast"], numbers["beta_slow"]])
        first, last = n * np.log(numbers[TOKENS] / (2 * math.pi * turns)) / math.log(base)
        if numbers["truncate"]:
            first, last = np.floor(first), np.ceil(last)
        first, last = max(first, 0), min(last, 2 * n - 1)  # this limit and 0.001 are those of the published code
        keep = 1 - np.clip((i - first) / max(last - first, 0.001), 0, 1)
    return f * (keep + (1 - keep) / s)


def scaled_rotary(
    x: np.ndarray, positions: np.ndarray, base: float, pairing: str = "half", width: int | None = None,
    scaling: Mapping[str, Any] | None = None,
) -> tuple[np.ndarray, RotaryCache]:
    """`rotary` with scaled frequencies, of the first `width` columns (None: all); its backward is `rotary_backward`.

    Formula: as `rotary` with f = rotary_frequencies(width, base, scaling); "yarn" also multiplies the turned columns
    by yarn_temperature(factor)

    Shapes: x (..., T, d_k), positions broadcastable to (..., T) -> y as x

    Raises: ValueError and TypeError, as `rotary` and `rotary_frequencies`.

    Source: Peng, Quesnelle, Fan, Shippole, YaRN (2023), section 3.4; part of the width: GPT-NeoX-20B (2022).
    """
    check_shapes("scaled_rotary", SHAPES, x=x)
    require_choice("scaled_rotary", "pairing", pairing, PAIRINGS)
    frequencies = rotary_frequencies(x.shape[-1] if width is None else width, base, scaling)
    cos, sin = rotary_tables(x, positions, base, frequencies)
    if scaling and scaling.get("rope_type", scaling.get("type")) == "yarn":
        longer = yarn_temperature(scaling["factor"])
        cos, sin = longer * cos, longer * sin
    return turn(x, cos, sin, pairing), RotaryCache(cos, sin, pairing, x.shape)


def scaled_rotary_backward(dy: np.ndarray, cache: RotaryCache) -> np.ndarray:
    """Gradient of `scaled_rotary`: turn dy back by the same angles, with the same temperature.

    Shapes: dy as y -> dx as x
    """
    # y = c R x, so dx = c R^T dy
    return rotary_backward(dy, cache)


def yarn_temperature(factor: float) -> float:
    """The factor by which YaRN multiplies the rotated columns of q and k, for texts `factor` times as long as in
    training.

    Formula: 0.1 ln(factor) + 1; if all columns are rotated, the scores are multiplied by its square

    Shapes: a number -> a number

    Raises: ValueError for a factor below 1.

    Source: Peng, Quesnelle, Fan, Shippole, YaRN (2023), section 3.4.

    >>> round(yarn_temperature(32.0), 4)
    1.3466
    """
    return 0.1 * math.log(require_number("yarn_temperature", "factor", factor, at_least=1)) + 1.0


def _check_frequencies(width: int, base: float, scaling: Any) -> tuple[str, dict[str, Any]]:
    """The type of the scaling and its numbers."""
    op = "rotary_frequencies"
    if require_size(op, "width", width, at_least=0) % 2:
        raise value_error(op, "width", "even", width, "columns are turned in pairs")
    if not isinstance(scaling, Mapping):
        raise dtype_error(op, "scaling", "a dict or None", type(scaling).__name__, '{"type": "linear", "factor": 2.0}?')
    kind = scaling.get("rope_type", scaling.get("type"))
    require_choice(op, 'scaling["type"]', kind, SCALINGS)
    require_number(op, "base", base, above=1 if kind == "yarn" else 0)
    known = {"factor": None, **SCALINGS[kind]}
    numbers: dict[str, Any] = known | {key: value for key, value in scaling.items() if key not in ("type", "rope_type")}
    if unknown := [str(key) for key in numbers if key not in known]:
        raise value_error(op, "scaling", f"made of type, {', '.join(known)}", ", ".join(unknown))
    for key, value in numbers.items():
        if key != "truncate":
            numbers[key] = require_number(op, f'scaling["{key}"]', value, above=numbers.get(ABOVE.get(key, ""), 0))
        elif not isinstance(value, bool):
            raise dtype_error(op, 'scaling["truncate"]', "True or False", type(value).__name__)
    require_number(op, 'scaling["factor"]', numbers["factor"], at_least=1)
    return kind, numbers
