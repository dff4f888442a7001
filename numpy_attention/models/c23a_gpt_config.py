"""Chapter 23, appendix. The sizes and variants of a GPT"""

from dataclasses import dataclass

from numpy_attention.layers.c18_feed_forward import GATED
from numpy_attention.models.c21a_config import ModelConfig

POSITIONS = ("learned", "rotary", "alibi", "sinusoidal")


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """The configuration of a GPT. The defaults are those of GPT-2; other values give later variants.

    Llama, for example: positions="rotary", norm="rms_norm", activation="swiglu", bias=False, num_kv_heads=...
    Models since 2023 have more options (`RecentGPTConfig`, Chapter 49).

    Raises: ValueError for sizes that do not fit together.
    """

    vocab_size: int
    context_length: int
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int | None = None  # None: 4 d_model, or 8/3 d_model for swiglu and geglu, which have three matrices, not two
    num_kv_heads: int | None = None  # None: as many as num_heads; fewer: grouped-query attention
    positions: str = "learned"  # or "rotary", "alibi", "sinusoidal"
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "gelu"  # or "gelu_exact", "relu", "silu", "swiglu", "geglu"
    window: int | None = None  # a query sees itself and the window - 1 tokens before it; None: all tokens before it
    bias: bool = True
    tie_weights: bool = True
    pre_norm: bool = True
    dropout: float = 0.0
    rotary_base: float = 10000.0
    norm_eps: float | None = None  # None: 1e-5 for layer_norm, 1e-6 for rms_norm
    attention: str = "auto"  # or "dense" (all weights at once), "tiled" (for long texts); auto: the faster one

    def __post_init__(self) -> None:
        self.check(positions=POSITIONS)
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise self.wrong("num_heads", "a multiple of num_kv_heads", f"{self.num_heads} and {self.num_kv_heads}")
        self.require("rotary_base", above=0)
        self.require("norm_eps", above=0, below=1)
        self.check_rotary()

    def check_rotary(self) -> None:
        if self.positions == "rotary" and self.head_width() % 2:
            got = f"{self.d_model} / {self.num_heads}"
            raise self.wrong("d_model / num_heads", "an even width per head for rotary positions", got)

    def hidden_width(self) -> int:
        """d_ff, or 4 d_model; 8/3 d_model for a gated form: its three matrices have as many parameters as two."""
        gated = self.d_ff is None and self.activation in GATED
        return max(1, 8 * self.d_model // 3) if gated else super().hidden_width()

    def head_width(self) -> int:
        """The width of the queries, keys and values of a head."""
        return self.d_model // self.num_heads
