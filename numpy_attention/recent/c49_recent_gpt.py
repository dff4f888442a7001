"""Chapter 49. A GPT since 2023: local and global blocks, blocks without positions, branch norms

The attention of Chapter 48 in a whole model. Two options give some blocks another kind of attention, for long texts:

    block (from 1)           1       2       3       4       5       6
    with global_every=3      local   local   global  local   local   global       (and a window)
    with nope_every=4        rotary  rotary  rotary  none    rotary  rotary

A **local** block has a window: a query sees only the last tokens, so the cost of the block grows with T, not with T^2.
A **global** block sees all earlier tokens, so information from far away enters the stream there. Local blocks can have
a smaller rotary base, because all their distances are short (Gemma 3). A block without positions (**NoPE**) compares
contents only, so texts longer than those in training give it no new angles. The other blocks encode positions
(SmolLM3), and the causal mask shows some order: early queries see few keys.

A **branch norm** normalizes the output of a sublayer before the addition of the residual connection (Chapter 19). So no
sublayer can write a much longer vector to the stream than the others. It is the only norm of a residual (OLMo 2), or it
follows the norm of pre-norm (Gemma 3):

    y = x + dropout(branch_norm(sublayer(x)))     y = x + dropout(branch_norm(sublayer(norm(x))))
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from numpy_attention.errors import broadcasts_to, dtype_error, require_float, shape_error, value_error
from numpy_attention.layers.c13_layer import Layer, Parameters, flat_gradients
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c19_residual import residual, residual_backward
from numpy_attention.layers.c20_block import Block, BlockCache
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.ops.c04_masks import sliding_window_mask
from numpy_attention.ops.c12a_tiles import Band
from numpy_attention.recent.c46_scores import CAPS
from numpy_attention.recent.c48_recent_attention import OUTPUT_GATES, QK_NORMS, RecentAttention, check_scaling


@dataclass(frozen=True)
class RecentGPTConfig(GPTConfig):
    """The configuration of a GPT with options of models since 2023.

    Raises: ValueError for sizes or options that do not fit together.

    Source: local and global blocks: Gemma Team, Gemma 3 Technical Report (2025), section 2; blocks without positions:
    Yang et al., Rope to Nope and Back Again (2025); branch norm: OLMo Team, 2 OLMo 2 Furious (2025).
    """

    d_k: int | None = None  # the width of a head; None: d_model / num_heads
    qkv_bias: bool | None = None  # biases of query, key and value; None: the value of `bias`
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
        super().__post_init__()
        self.check(qk_norm=(None, *QK_NORMS), output_gate=(None, *OUTPUT_GATES))
        for name in ("local_rotary_base", "attention_scale"):
            self.require(name, above=0)
        self.require("softcap", **CAPS)
        rotary = self.positions == "rotary"
        if self.window is None and self.global_every is not None:
            raise self.wrong("global_every", "None without a window", self.global_every)
        if not rotary and self.nope_every is not None:
            raise self.wrong("nope_every", "None without rotary positions", self.nope_every)
        if (not rotary or self.window is None) and self.local_rotary_base is not None:
            raise self.wrong("local_rotary_base", "None without rotary positions and a window", self.local_rotary_base)

    def convert(self, name: str, kinds: tuple[type, ...]) -> None:
        if name != "rotary_scaling":
            super().convert(name, kinds)
        elif self.rotary_scaling is not None:  # a dict of numbers and texts, as JSON stores it
            if not isinstance(self.rotary_scaling, dict):
                raise dtype_error(type(self).__name__, name, "a dict", repr(self.rotary_scaling))
            object.__setattr__(self, name, dict(self.rotary_scaling))  # because the dataclass is frozen

    def check_heads(self) -> None:
        if self.d_k is None:
            super().check_heads()

    def check_rotary(self) -> None:
        if self.d_k is None and self.rotary_width is None:
            super().check_rotary()
        base = self.rotary_base if self.positions == "rotary" else None
        check_scaling(type(self).__name__, self.head_width(), base, self.rotary_width, self.rotary_scaling)

    def head_width(self) -> int:
        return super().head_width() if self.d_k is None else self.d_k

    def window_of(self, block: int) -> int | None:
        """The window of a block, which is counted from 0; None for a global block."""
        return None if _is_nth(block, self.global_every) else self.window

    def attention_of(self, block: int) -> dict[str, Any]:
        """The options of the attention of a block, which is counted from 0."""
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


class NoNorm:
    """A norm that is off: y = x."""

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, None]:
        return x, None

    def backward(self, dy: np.ndarray, cache: None) -> tuple[np.ndarray, Parameters]:
        return dy, {}


class BranchCache(NamedTuple):
    """The caches of a sublayer and of the norm after it."""

    sublayer: Any
    norm: Any

    def weights(self) -> np.ndarray:
        """The weights (B, H, T_q, T_k), if the sublayer is attention."""
        return self.sublayer.weights()


class Branch(NamedTuple):
    """A sublayer and the norm of its output: y = norm(sublayer(x)). Both belong to a block."""

    sublayer: Layer
    norm: Layer | NoNorm

    def forward(self, x: np.ndarray, **inputs: Any) -> tuple[np.ndarray, BranchCache]:
        h, of_sublayer = self.sublayer.forward(x, **inputs)
        y, of_norm = self.norm.forward(h)
        return y, BranchCache(of_sublayer, of_norm)

    def backward(self, dy: np.ndarray, cache: BranchCache) -> tuple[np.ndarray, Parameters, Parameters]:
        """Return dx, the gradients of the norm, and those of the sublayer."""
        # y = norm(h)
        dh, of_norm = self.norm.backward(dy, cache.norm)
        # h = sublayer(x)
        dx, of_sublayer = self.sublayer.backward(dh, cache.sublayer)
        return dx, of_norm, of_sublayer


class RecentBlock(Block):
    """A block with `RecentAttention`, and optional branch norms and a window.

    With `window`, a query sees only the last keys among those that its mask or band shows. With `branch_norm` but
    without `pre_norm`, the branch norms are the only norms.

    Shapes: x (B, T, d_model) -> y (B, T, d_model).

    Raises: TypeError or ValueError for invalid sizes and options.

    Source: Gemma Team, Gemma 3 Technical Report (2025), section 2; OLMo Team, 2 OLMo 2 Furious (2025).
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, rng: np.random.Generator | None, *, window: int | None = None,
        branch_norm: bool = False, pre_norm: bool = False, norm: str = "layer_norm", norm_eps: float | None = None,
        bias: bool = True, dropout: float = 0.0, attention: dict[str, Any] | None = None, dtype: Any = np.float32,
        **options: Any,
    ) -> None:
        if options.get("cross_attention"):
            raise value_error("RecentBlock", "cross_attention", "False", True, "DecoderBlock has cross-attention")
        same: dict[str, Any] = {"bias": bias, "dropout": dropout, "dtype": dtype}
        options |= {"norm": norm, "norm_eps": norm_eps, "pre_norm": pre_norm or branch_norm, **same}
        super().__init__(d_model, num_heads, d_ff, rng, attention={"d_k": 1}, **options)
        self.attention = RecentAttention(d_model, num_heads, rng, **same | (attention or {}))
        self.window = window
        if branch_norm and not pre_norm:
            self.norm_1, self.norm_2 = NoNorm(), NoNorm()
        self.branch_norm_1: Layer | NoNorm = norm_layer(norm, d_model, norm_eps, dtype) if branch_norm else NoNorm()
        self.branch_norm_2: Layer | NoNorm = norm_layer(norm, d_model, norm_eps, dtype) if branch_norm else NoNorm()

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None, scores_bias: np.ndarray | None = None,
        positions: np.ndarray | None = None, past: Any = None, rng: np.random.Generator | None = None,
        band: Band | None = None,
    ) -> tuple[np.ndarray, BlockCache]:
        self.check_context(context)
        require_float("RecentBlock", x=x)
        if self.window is not None and band is not None:
            band = band._replace(window=self.window)
        elif self.window is not None:
            T = x.shape[1]
            near = sliding_window_mask(T, self.window, T + (0 if past is None else past.length), like=x)
            if mask is not None and not broadcasts_to(mask.shape[-2:], near.shape):
                raise shape_error("RecentBlock", "mask", f"broadcastable to (..., T_q, T_k), {near.shape}", mask.shape)
            mask = near if mask is None else near & mask
        attention, feed_forward = self._branches()
        how = self.pre_norm, self.dropout, rng
        h, of_attention = residual(
            x, self.norm_1, attention, *how,
            mask=mask, scores_bias=scores_bias, positions=positions, past=past, band=band, rng=rng,
        )
        y, of_feed_forward = residual(h, self.norm_2, feed_forward, *how, rng=rng)
        return y, BlockCache(of_attention, None, of_feed_forward)

    def backward(self, dy: np.ndarray, cache: BlockCache) -> tuple[np.ndarray, Parameters]:
        attention, feed_forward = self._branches()
        grads: dict[str, Any] = {}
        # y = residual(h, norm_2, branch_norm_2(feed_forward))
        dh, grads["norm_2"], grads["branch_norm_2"], grads["feed_forward"] = residual_backward(
            dy, cache.feed_forward, self.norm_2, feed_forward, self.pre_norm
        )
        # h = residual(x, norm_1, branch_norm_1(attention))
        dx, grads["norm_1"], grads["branch_norm_1"], grads["attention"] = residual_backward(
            dh, cache.attention, self.norm_1, attention, self.pre_norm
        )
        return dx, flat_gradients(grads)

    def _branches(self) -> tuple[Branch, Branch]:
        return Branch(self.attention, self.branch_norm_1), Branch(self.feed_forward, self.branch_norm_2)


class RecentGPT(GPT):
    """A GPT with the options of models since 2023.

    Shapes: ids (B, T) -> logits (B, T, V), T at most context_length.

    Source: as `RecentGPTConfig`.
    """

    config_class: ClassVar[Any] = RecentGPTConfig

    def __init__(self, config: RecentGPTConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        super().__init__(config, rng, dtype)
        self.window = None  # each block has its own window
        if config.embedding_scale:
            self.embedding_scale = math.sqrt(config.d_model)

    def new_blocks(self, dtype: Any) -> list[Block]:
        c = self.config
        sizes, norms = (c.d_model, c.num_heads, c.hidden_width(), None), {"norm": c.norm, "norm_eps": c.norm_eps}
        same = {"pre_norm": c.pre_norm, "branch_norm": c.branch_norm, "activation": c.activation, "bias": c.bias}
        same |= {"dropout": c.dropout, "dtype": dtype, **norms}
        each = [(c.window_of(i), c.attention_of(i)) for i in range(c.num_layers)]
        return [RecentBlock(*sizes, window=window, attention=attention, **same) for window, attention in each]
