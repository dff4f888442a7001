"""Chapter 23, appendix. The sizes and variants of a GPT, checked once"""

from dataclasses import dataclass

from numpy_attention.layers.feed_forward import ACTIVATIONS

POSITIONS = ("learned", "rotary", "alibi", "sinusoidal")
NORMS = ("layer_norm", "rms_norm")


@dataclass(frozen=True)
class GPTConfig:
    """All that a GPT is, but its weights; the defaults make GPT-2, other values the later variants.

    Llama, for example: positions="rotary", norm="rms_norm", activation="swiglu", bias=False, num_kv_heads=...

    Raises: `ValueError` for sizes that do not fit together.
    """

    vocab_size: int
    context_length: int
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int | None = None  # None: 4 d_model, or 8/3 d_model for swiglu, which has three matrices for two
    num_kv_heads: int | None = None  # None: as many as num_heads; fewer: grouped-query attention
    positions: str = "learned"  # or "rotary", "alibi", "sinusoidal"
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "gelu"  # or "gelu_exact", "relu", "silu", "swiglu"
    window: int | None = None  # a query sees the last `window` tokens, itself included; None: all before it
    bias: bool = True
    tie_weights: bool = True
    pre_norm: bool = True
    dropout: float = 0.0
    rotary_base: float = 10000.0
    norm_eps: float | None = None  # None: 1e-5 for layer_norm, 1e-6 for rms_norm

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "context_length", "d_model", "num_heads", "num_layers", "d_ff", "num_kv_heads", "window")
        for name in sizes:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"GPTConfig: {name} must be at least 1, got {value}")
        for name, choices in (("positions", POSITIONS), ("norm", NORMS), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"GPTConfig: {name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"GPTConfig: d_model must be divisible by num_heads, got {self.d_model} and {self.num_heads}"
            )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"GPTConfig: num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        if self.positions == "rotary" and (self.d_model // self.num_heads) % 2:
            raise ValueError(
                f"GPTConfig: rotary positions need an even width per head, got {self.d_model} / {self.num_heads}"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"GPTConfig: dropout must be in [0, 1), got {self.dropout}")
        if not self.rotary_base > 0:
            raise ValueError(f"GPTConfig: rotary_base must be above 0, got {self.rotary_base}")
        if self.norm_eps is not None and not 0 < self.norm_eps < 1:
            raise ValueError(f"GPTConfig: norm_eps must be between 0 and 1, got {self.norm_eps}")

    def hidden_width(self) -> int:
        """The width of the feed-forward networks."""
        if self.d_ff is not None:
            return self.d_ff
        return max(1, 8 * self.d_model // 3) if self.activation == "swiglu" else 4 * self.d_model
