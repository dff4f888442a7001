"""Chapter 21, appendix. What all configurations have in common, and the checks that all share

A configuration that cannot be built is refused when it is made, with the name of the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args, get_type_hints

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import dtype_error, require_number, require_size, value_error
from numpy_attention.layers.feed_forward import ACTIVATIONS

NORMS = ("layer_norm", "rms_norm")
ATTENTION = ("auto", "dense", "tiled")
# Queries from which on attention goes in tiles. Forward and backward of (8, 6, T, 64) in float32 on one core took, as
# shares of the time of all weights at once, for T = 256, 384, 512 and 1024, with a causal mask 1.23, 0.92, 0.88, 0.71,
# and 1.23, 1.08, 1.02, 1.11 without one, where the memory, which grows with T and not with T^2, is the gain.
TILES_FROM = 512
LARGEST = 2**31 - 1  # of a size; no array has room for more, and their products stay within the integers of NumPy


class ModelConfig:
    """The fields that every model's configuration has; each is a dataclass that writes them out with its defaults."""

    context_length: int
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int | None
    positions: str
    pre_norm: bool
    norm: str
    activation: str
    bias: bool
    dropout: float
    attention: str

    def hidden_width(self) -> int:
        """The width of the feed-forward networks."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def in_tiles(self, x: np.ndarray, T: int) -> bool:
        """Whether T queries made of x attend in tiles (Chapter 12) or with all their weights (Chapter 6)."""
        if self.attention == "auto":
            # float16 has too few digits for running sums, and a GPU wants few large calls
            return T >= TILES_FROM and x.dtype != np.float16 and on_host(x)
        return self.attention == "tiled" and T > 1  # one query has no square of weights to be spared

    def check(self, **choices: Collection[str]) -> None:
        """Refuse sizes below 1, values that are not among the choices, and heads that do not share d_model evenly.

        Numbers of NumPy become those of Python, which a file can hold and which do not widen what they meet.
        """
        for name, kind in get_type_hints(type(self)).items():
            self._settle(name, get_args(kind) or (kind,))  # int | None has the kinds int and NoneType
        for name, allowed in {**choices, "norm": NORMS, "activation": ACTIVATIONS, "attention": ATTENTION}.items():
            if str(getattr(self, name)) not in allowed:
                raise self.wrong(name, f"one of {', '.join(allowed)}", repr(getattr(self, name)))
        if self.d_model % self.num_heads:
            raise self.wrong("d_model", "divisible by num_heads", f"{self.d_model} and {self.num_heads}")
        self.require("dropout", at_least=0, below=1)

    def _settle(self, name: str, kinds: tuple[type, ...]) -> None:
        """A field becomes a value of its kind, or is refused."""
        value, op = getattr(self, name), type(self).__name__
        if value is None and type(None) in kinds:
            return
        if int in kinds:
            value = require_size(op, name, value, at_least=-1 if name == "pad_token" else 1)
            require_number(op, name, value, at_most=LARGEST)
        elif float in kinds:
            value = require_number(op, name, value)
        elif bool in kinds:
            if not isinstance(value, (bool, np.bool_)):
                raise dtype_error(op, name, "True or False", repr(value))
            value = bool(value)
        object.__setattr__(self, name, value)  # for the dataclass is frozen

    def require(self, field: str, **limits: Any) -> None:
        """Refuse a number beyond its limits; None is what stands for the default."""
        if getattr(self, field) is not None:
            require_number(type(self).__name__, field, getattr(self, field), **limits)

    def wrong(self, field: str, expected: str, got: object) -> ValueError:
        """The error for a field, under the name of the configuration."""
        return value_error(type(self).__name__, field, expected, got)
