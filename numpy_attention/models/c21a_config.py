"""Chapter 21, appendix. Configurations: the fields and checks that all models share

A configuration checks its fields when it is created. The error names the first invalid field.
"""

from collections.abc import Collection
from typing import Any, get_args, get_type_hints

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import dtype_error, require_number, require_size, value_error
from numpy_attention.layers.c18_feed_forward import ACTIVATIONS

NORMS = ("layer_norm", "rms_norm")
ATTENTION = ("auto", "dense", "tiled")
# From this number of queries on, attention is computed in tiles. Measured: forward and backward of (8, 6, T, 64) in
# float32 on one core. The time of tiles divided by the time of all weights at once, for T = 256, 384, 512 and 1024:
# with a causal mask 1.23, 0.92, 0.88, 0.71; without a mask 1.23, 1.08, 1.02, 1.11. Without a mask, tiles only save
# memory: the memory grows with T instead of T^2.
TILES_FROM = 512
LARGEST = 2**31 - 1  # the largest size: arrays cannot be larger, and products of two sizes fit in NumPy's integers


class ModelConfig:
    """The fields that every configuration has. Each subclass is a dataclass that repeats them with defaults."""

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
        """Whether T queries attend in tiles (Chapter 12) instead of with all weights at once (Chapter 6).

        x, the input of the stack, tells where the arrays are: on a GPU, all weights at once are faster.
        """
        if self.attention == "auto":
            return T >= TILES_FROM and not self.dropout and on_host(x)
        return self.attention == "tiled" and T > 1  # one query has one row of weights, no T x T array

    def check(self, **choices: Collection[str | None]) -> None:
        """Refuse sizes below 1, values that are not among the choices, and a d_model not divisible by num_heads.

        NumPy numbers become Python numbers, because JSON can store these and they do not change the dtype of arrays.
        """
        for name, kind in get_type_hints(type(self)).items():
            self.convert(name, get_args(kind) or (kind,))  # int | None has the kinds int and NoneType
        for name, allowed in {**choices, "norm": NORMS, "activation": ACTIVATIONS, "attention": ATTENTION}.items():
            value = getattr(self, name)
            if (value if value is None else str(value)) not in allowed:
                raise self.wrong(name, f"one of {', '.join(map(str, allowed))}", repr(value))
        self.check_heads()
        self.require("dropout", at_least=0, below=1)
        if self.dropout and self.attention == "tiled":
            raise self.wrong("dropout", '0 with attention="tiled"', f'{self.dropout}; "auto" and "dense" have dropout')

    def check_heads(self) -> None:
        """Refuse a d_model that cannot be divided among the heads."""
        if self.d_model % self.num_heads:
            raise self.wrong("d_model", "divisible by num_heads", f"{self.d_model} and {self.num_heads}")

    def convert(self, name: str, kinds: tuple[type, ...]) -> None:
        """Check the type of a field, and replace a NumPy number by a Python number."""
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
        object.__setattr__(self, name, value)  # because the dataclass is frozen

    def require(self, field: str, **limits: Any) -> None:
        """Refuse a number outside its limits; None means the default."""
        if getattr(self, field) is not None:
            require_number(type(self).__name__, field, getattr(self, field), **limits)

    def wrong(self, field: str, expected: str, got: object) -> ValueError:
        """The error for an invalid field; it begins with the name of the configuration."""
        return value_error(type(self).__name__, field, expected, got)
