"""Chapter 21, appendix. What all configurations have in common, and the checks that all share

A configuration that cannot be built is refused when it is made, with the name of the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.errors import require_number, require_size, value_error
from numpy_attention.layers.feed_forward import ACTIVATIONS

NORMS = ("layer_norm", "rms_norm")
ATTENTION = ("auto", "dense", "tiled")
# Queries from which on attention goes in tiles. Forward and backward of (8, 6, T, 64) in float32 on one core took, as
# shares of the time of all weights at once, for T = 256, 384, 512 and 1024, with a causal mask 1.23, 0.92, 0.88, 0.71,
# and 1.23, 1.08, 1.02, 1.11 without one, where the memory, which grows with T and not with T^2, is the gain.
TILES_FROM = 512
LARGEST = 2**31 - 1  # of a size; no array has room for more, and their products stay within the integers of NumPy
SIZES = (
    "vocab_size", "source_vocab_size", "target_vocab_size", "num_classes", "d_input", "context_length", "d_model",
    "num_heads", "num_kv_heads", "num_layers", "num_decoder_layers", "d_ff", "window", "num_types",
)


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
        """Refuse sizes below 1, values that are none of the choices, and heads that do not share d_model evenly."""
        for name in SIZES:
            value = getattr(self, name, None)
            may_be_none = getattr(type(self), name, 0) is None  # as its default is
            if name in vars(self) and not (value is None and may_be_none):
                require_size(type(self).__name__, name, value)
                require_number(type(self).__name__, name, value, at_most=LARGEST)
        if (pad_token := getattr(self, "pad_token", None)) is not None:
            require_number(type(self).__name__, "pad_token", pad_token, whole=True)
        for name, allowed in {**choices, "norm": NORMS, "activation": ACTIVATIONS, "attention": ATTENTION}.items():
            if getattr(self, name) not in tuple(allowed):  # a list has no place in a dict
                raise self.wrong(name, f"one of {', '.join(allowed)}", repr(getattr(self, name)))
        if self.d_model % self.num_heads:
            raise self.wrong("d_model", "divisible by num_heads", f"{self.d_model} and {self.num_heads}")
        require_number(type(self).__name__, "dropout", self.dropout, at_least=0, below=1)

    def wrong(self, field: str, expected: str, got: object) -> ValueError:
        """The error for a field, under the name of the configuration."""
        return value_error(type(self).__name__, field, expected, got)
