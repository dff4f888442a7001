"""GPT (Chapter 23) in every configuration: in tiles, with recomputation, with changes of low rank."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, Options, layer_entry
from numpy_attention.catalogue.mistake import method_of, stands_in_for
from numpy_attention.catalogue.tiny import GATED, IDS, SMALL, TILED, tiny_model, training_on
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.head import LossByRows
from numpy_attention.ops.positions import TOKENS
from numpy_attention.ops.sums import as_rows

CHAPTER = 23

LLAMA_3 = {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, TOKENS: 8}
GEMMA_3: dict[str, Any] = {
    **GATED, "activation": "geglu", "positions": "rotary", "num_layers": 2, "num_kv_heads": 1, "qk_norm": "head",
    "branch_norm": True, "embedding_scale": True, "attention_scale": 0.4, "window": 2, "global_every": 2,
    "local_rotary_base": 100.0, "rotary_scaling": {"type": "linear", "factor": 8.0},
}
GPT_OSS: dict[str, Any] = {
    "positions": "rotary", "norm": "rms_norm", "num_layers": 2, "num_kv_heads": 1, "sink": True, "window": 2,
    "global_every": 2, "rotary_scaling": {"type": "yarn", "factor": 4.0, TOKENS: 32, "truncate": False},
}


def _entry(variant: str, options: Options | None = None, **model: Any) -> Entry:
    spec, wrong = f"{IDS}, targets: int<V|-100> B T", "ids:float64 ids=999 targets+0 ids[more]"
    return layer_entry(GPT, variant, spec, partial(tiny_model, GPT, **model), options, wrong=wrong, **SMALL)


ENTRIES = (
    _entry("learned positions, tied, two blocks", num_layers=2),
    _entry("as smollm 3", positions="rotary", nope_every=2, num_layers=2, **GATED),
    _entry("untied, post-norm", tie_weights=False, pre_norm=False, activation="relu"),
    _entry("rotary, rms norm, swiglu, grouped heads", positions="rotary", num_kv_heads=1, **GATED),
    _entry("ALiBi, window", positions="alibi", window=2),
    _entry("sinusoidal, exact gelu", positions="sinusoidal", activation="gelu_exact"),
    _entry("dropout", training_on, dropout=0.3),
    _entry("in tiles, ALiBi, window", **TILED, positions="alibi", window=2),
    _entry("in tiles, rotary, grouped heads", **TILED, positions="rotary", num_kv_heads=1),
    _entry("low rank, rotary, rms norm, swiglu, grouped heads", rank=2, positions="rotary", num_kv_heads=1, **GATED),
    _entry("low rank, learned positions, untied, two blocks", rank=1, tie_weights=False, num_layers=2),
    _entry("dropout, two blocks, recomputed", training_on, recompute=True, dropout=0.3, num_layers=2),
    _entry("ALiBi, recomputed, tied, loss by two rows", recompute=True, rows=2, positions="alibi"),
    _entry("untied, loss by four rows", rows=4, tie_weights=False),
    _entry("low rank, tied, loss by rows", rank=2, rows=1),
    _entry("low rank, untied, loss by rows", rank=2, rows=1, tie_weights=False),
    _entry("as llama 3", positions="rotary", rotary_scaling=LLAMA_3, num_kv_heads=1, **GATED),
    _entry("as qwen 3", positions="rotary", d_k=6, qk_norm="head", num_kv_heads=1, **GATED),
    _entry("as olmo 2", positions="rotary", pre_norm=False, branch_norm=True, qk_norm="all", **GATED),
    _entry("as gemma 3", **GEMMA_3),
    _entry("as gemma 3, in tiles, recomputed", recompute=True, **TILED, **GEMMA_3),
    _entry("as gpt-oss", **GPT_OSS),
    _entry("as gpt-oss, in tiles", **TILED, **GPT_OSS),
    _entry("gates, softcap, part of the width rotated, low rank", rank=1, positions="rotary", d_k=4, rotary_width=2,
           output_gate="head", softcap=2.0, **GATED),
)


@method_of("GPT", "gradients_from_logits", diagnosis="the path through `vectors.T` is missing")
def tied_head_left_out(self: GPT, cache: Any, dlogits: Array | LossByRows) -> Any:
    """The table is used twice, as embedding and as head, but the gradient of the head is not added.

    Hides: the embedding still learns from its own gradient, and untied models are right.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        if name == "token_embedding.table" and self.head is None and isinstance(dlogits, np.ndarray):
            gradient -= as_rows(dlogits).T @ as_rows(cache.head.x)
        yield name, gradient


@method_of("GPT", "gradients_from_logits", diagnosis="the backward returns zero")
def queries_without_positions_skipped(self: GPT, cache: Any, dlogits: Array | LossByRows) -> Any:
    """In a block without positions nothing is turned back, and the backward also skips the gradient of w_q there.

    Hides: the block still learns with its other matrices, and models with positions in every block are right.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        skipped = name == f"blocks.{(self.config.nope_every or 0) - 1}.attention.w_q"
        yield name, np.zeros_like(gradient) if skipped else gradient


def trial_of_blocks(config: Callable[..., GPTConfig], seed: int) -> None:
    """Counted from 1, each n-th block is global, and each m-th has no positions; local blocks have their own base."""
    n, m, window = (int(number) for number in np.random.default_rng(seed).integers(2, 6, size=3))
    made = config(5, 8, 4, 2, 9, positions="rotary", window=window, global_every=n, nope_every=m, local_rotary_base=9.0)
    for i in range(1, 10):
        base = None if i % m == 0 else 9.0 if i % n else made.rotary_base
        expected = window if i % n else None, base
        got = made.window_of(i - 1), made.attention_of(i - 1).get("rotary_base")
        assert got == expected, f"block {i} of 9 must have the window and the base of rotary {expected}, got {got}"


TRIALS = {"GPTConfig": (GPTConfig, trial_of_blocks)}


@stands_in_for("GPTConfig", diagnosis="block 1 of 9 must have the window")
class GlobalBlockFirst(GPTConfig):
    """Each group of blocks begins with its global block, because the count of the blocks starts at 0.

    Hides: the model trains well; a file of a model whose groups end with the global block gives wrong logits.
    """

    def window_of(self, block: int) -> int | None:
        return super().window_of(block - 1)


@stands_in_for("GPTConfig", diagnosis="10000.0), got (None, 9.0)")
class LocalBaseInEveryBlock(GPTConfig):
    """Global blocks have the base of local blocks, so distant positions get the same angles again and again.

    Hides: right for texts that fit into the window.
    """

    def attention_of(self, block: int) -> dict[str, Any]:
        options = super().attention_of(block)
        return options | {"rotary_base": self.local_rotary_base} if "rotary_base" in options else options


@stands_in_for("GPTConfig", diagnosis="None), got")
class PositionsInEveryBlock(GPTConfig):
    """The option `nope_every` is read, but every block still rotates its queries and keys.

    Hides: the model trains as well as before; only a file of a model with such blocks gives wrong logits.
    """

    def attention_of(self, block: int) -> dict[str, Any]:
        base = self.rotary_base if self.window_of(block) is None else self.local_rotary_base
        return super().attention_of(block) | {"rotary_base": base}


@method_of("GPT", "gradients_from_logits", diagnosis="a mean replaces the sum over the 2 elements of axis 0")
def positions_not_summed_over_the_batch(self: GPT, cache: Any, dlogits: Array | LossByRows) -> Any:
    """All sequences of the batch use the table of positions, but it gets the mean of their gradients, not the sum.

    Hides: right for a batch of one, and the learning rate absorbs the factor.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        yield name, gradient / len(cache.token.ids) if name == "position_embedding.table" else gradient
