"""Chapter 23, appendix. The sizes and variants of a GPT

Two options give some blocks another kind of attention, for long texts:

    block (from 1)           1       2       3       4       5       6
    with global_every=3      local   local   global  local   local   global       (and a window)
    with nope_every=4        rotary  rotary  rotary  none    rotary  rotary

A **local** block has a window: a query sees only the last tokens, so the cost of the block grows with T, not with T^2.
A **global** block sees all earlier tokens, so information from far away enters the stream there. Local blocks can have
a smaller rotary base, because all their distances are short (Gemma 3). A block without positions (**NoPE**) compares
contents only, so texts longer than those in training give it no new angles. The other blocks encode positions
(SmolLM3), and the causal mask shows some order: early queries see few keys.
"""

from dataclasses import dataclass
from typing import Any

from numpy_attention.layers.c17_multi_head_attention import OUTPUT_GATES, QK_NORMS, check_rotary
from numpy_attention.layers.c18_feed_forward import GATED
from numpy_attention.models.c21a_config import ModelConfig
from numpy_attention.ops.c06b_scores import CAPS

POSITIONS = ("learned", "rotary", "alibi", "sinusoidal")


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """The configuration of a GPT. The defaults are those of GPT-2; other values give later variants.

    Llama, for example: positions="rotary", norm="rms_norm", activation="swiglu", bias=False, num_kv_heads=...
    Models since 2023 use the options below `attention`.

    Raises: ValueError for sizes that do not fit together.

    Source: local and global blocks: Gemma Team, Gemma 3 Technical Report (2025), section 2; blocks without positions:
    Yang et al., Rope to Nope and Back Again (2025).
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
    qkv_bias: bool | None = None  # biases of query, key and value; None: the value of `bias`
    tie_weights: bool = True
    pre_norm: bool = True
    dropout: float = 0.0
    rotary_base: float = 10000.0
    norm_eps: float | None = None  # None: 1e-5 for layer_norm, 1e-6 for rms_norm
    attention: str = "auto"  # or "dense" (all weights at once), "tiled" (for long texts); auto: the faster one
    d_k: int | None = None  # the width of a head; None: d_model / num_heads
    attention_scale: float | None = None  # multiplies q k^T; None: 1 / sqrt(d_k)
    softcap: float | None = None  # the largest score, cap tanh(score / cap); None: no limit
    sink: bool = False  # one learned score for each head that takes weight and has no value
    qk_norm: str | None = None  # or "head" (each head by itself), "all" (all heads of q, all heads of k)
    output_gate: str | None = None  # or "head" (one gate for each head), "element" (one for each output of a head)
    rotary_width: int | None = None  # rotate only the first numbers of a head; None: all
    rotary_scaling: dict[str, Any] | None = None  # frequencies for longer texts, as rope_scaling in a config.json
    local_rotary_base: float | None = None  # blocks with a window: this base, no scaling; None: as other blocks
    global_every: int | None = None  # with a window: each n-th block has no window
    nope_every: int | None = None  # with rotary positions: each n-th block has no positions
    branch_norm: bool = False  # a norm on the output of each branch; without pre_norm, it is the only norm of a block
    embedding_scale: bool = False  # multiply the embeddings by sqrt(d_model); always so with sinusoidal positions

    def __post_init__(self) -> None:
        self.check(positions=POSITIONS, qk_norm=(None, *QK_NORMS), output_gate=(None, *OUTPUT_GATES))
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise self.wrong("num_heads", "a multiple of num_kv_heads", f"{self.num_heads} and {self.num_kv_heads}")
        for name in ("rotary_base", "local_rotary_base", "attention_scale"):
            self.require(name, above=0)
        self.require("norm_eps", above=0, below=1)
        self.require("softcap", **CAPS)
        base = self.rotary_base if self.positions == "rotary" else None
        if base is not None and self.d_k is None and self.rotary_width is None and self.head_width() % 2:
            got = f"{self.d_model} / {self.num_heads}"
            raise self.wrong("d_model / num_heads", "an even width per head for rotary positions", got)
        check_rotary(type(self).__name__, self.head_width(), base, self.rotary_width, self.rotary_scaling)
        if self.window is None and self.global_every is not None:
            raise self.wrong("global_every", "None without a window", self.global_every)
        if base is None and self.nope_every is not None:
            raise self.wrong("nope_every", "None without rotary positions", self.nope_every)
        if (base is None or self.window is None) and self.local_rotary_base is not None:
            raise self.wrong("local_rotary_base", "None without rotary positions and a window", self.local_rotary_base)

    def hidden_width(self) -> int:
        """d_ff, or 4 d_model; 8/3 d_model for a gated form: its three matrices have as many parameters as two."""
        gated = self.d_ff is None and self.activation in GATED
        return max(1, 8 * self.d_model // 3) if gated else super().hidden_width()

    def head_width(self) -> int:
        """The width of the queries, keys and values of a head."""
        return self.d_model // self.num_heads if self.d_k is None else self.d_k

    @property
    def scales_embedding(self) -> bool:
        """Whether embeddings are multiplied by sqrt(d_model)."""
        return self.embedding_scale or self.positions == "sinusoidal"

    def window_of(self, block: int) -> int | None:
        """The window of a block, which is counted from 0; None for a global block."""
        return None if _is_nth(block, self.global_every) else self.window

    def attention_of(self, block: int) -> dict[str, Any]:
        names = "num_kv_heads", "d_k", "qkv_bias", "qk_norm", "norm_eps", "output_gate", "sink", "softcap"
        options = {name: getattr(self, name) for name in names} | {"scale": self.attention_scale}
        if self.positions != "rotary" or _is_nth(block, self.nope_every):
            return options
        options["rotary_width"] = self.rotary_width
        if self.local_rotary_base is not None and self.window_of(block) is not None:
            return options | {"rotary_base": self.local_rotary_base}
        return options | {"rotary_base": self.rotary_base, "rotary_scaling": self.rotary_scaling}


def _is_nth(block: int, n: int | None) -> bool:
    return n is not None and (block + 1) % n == 0
