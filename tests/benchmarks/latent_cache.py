"""The tables of docs/latent_cache.md: how much memory the KV cache of published models needs for a token.

    python -m tests.benchmarks.latent_cache    # writes the tables into the page

The bytes are counted, not computed: the script stores a token in a `KeyValueCache` and adds the sizes of its arrays.
NumPy has no bfloat16, so the arrays are float16, which also has two bytes.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

import numpy_attention as na
from tests.generated import with_block

PAGE = Path(__file__).parents[2] / "docs" / "latent_cache.md"
CONTEXT = 131_072


class Sizes(NamedTuple):
    """One model; with a latent, `stored` is None."""

    model: str
    released: str
    config: str  # of this repository on Hugging Face
    layers: int
    H: int
    d_k: int
    stored: int | None  # how many heads have keys and values
    d_v: int
    r: int = 0
    d_rope: int = 0


def with_heads(model: str, released: str, config: str, layers: int, H: int, stored: int, d_k: int) -> Sizes:
    return Sizes(model, released, config, layers, H, d_k, stored, d_k)


def with_latent(model: str, released: str, config: str, layers: int, H: int) -> Sizes:
    return Sizes(model, released, config, layers, H, 128 + 64, None, 128, r=512, d_rope=64)


MODELS = (
    with_heads("GPT-2", "February 2019", "openai-community/gpt2", 12, 12, 12, 64),
    with_heads("Llama 2 7B", "July 2023", "meta-llama/Llama-2-7b-hf", 32, 32, 32, 128),
    with_heads("Llama 3 8B", "April 2024", "meta-llama/Meta-Llama-3-8B", 32, 32, 8, 128),
    with_heads("Qwen3 8B", "April 2025", "Qwen/Qwen3-8B", 36, 32, 8, 128),
    with_heads("Gemma 2B", "February 2024", "google/gemma-2b", 18, 8, 1, 256),
    with_latent("DeepSeek-V2-Lite", "May 2024", "deepseek-ai/DeepSeek-V2-Lite", 27, 16),
    with_latent("DeepSeek-V2", "May 2024", "deepseek-ai/DeepSeek-V2", 60, 128),
    with_latent("DeepSeek-V3", "December 2024", "deepseek-ai/DeepSeek-V3", 61, 128),
)


def stored_bytes(heads: int, d_k: int, d_v: int) -> int:
    """The bytes of one token in the KV cache of one layer."""
    past = na.KeyValueCache(1)
    k, v = past.append(np.zeros((1, heads, 1, d_k), np.float16), np.zeros((1, heads, 1, d_v), np.float16))
    return k.nbytes + v.nbytes


def bytes_of(one: Sizes) -> int:
    return stored_bytes(1, one.r + one.d_rope, 0) if one.stored is None else stored_bytes(one.stored, one.d_k, one.d_v)


def kind_of(one: Sizes) -> str:
    if one.stored is None:
        return f"latent: {one.r} + {one.d_rope}"
    kind = {one.H: "full heads", 1: "multi-query"}.get(one.stored, "grouped heads")
    return f"{kind}: {one.stored} of {one.H} heads of {one.d_k}"


def tables() -> dict[str, list[str]]:
    """The blocks of the page, by the names of the markers around them."""
    return {"models": models_table(), "one model": one_model_table(), "work": work_table()}


def models_table() -> list[str]:
    head = "| model | released | what a layer stores | bytes a token and layer | layers | kB a token "
    head += f"| GB for {CONTEXT:,} tokens | sizes from the config.json of |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for one in MODELS:
        size = bytes_of(one)
        token = size * one.layers
        lines.append(
            f"| {one.model} | {one.released} | {kind_of(one)} | {size:,} | {one.layers} | {token / 1e3:.1f} "
            f"| {token * CONTEXT / 1e9:.1f} | `{one.config}` |"
        )
    return lines


def one_model_table() -> list[str]:
    one = MODELS[-1]
    latent = bytes_of(one)
    kinds = {
        "full heads": (one.H, one.d_k, one.d_v), "grouped heads, 8 of 128": (8, one.d_k, one.d_v),
        "multi-query, 1 of 128": (1, one.d_k, one.d_v), "latent": (1, one.r + one.d_rope, 0),
    }
    lines = ["| DeepSeek-V3 with | bytes a token and layer | times the latent |", "|---|---|---|"]
    for name, shape in kinds.items():
        size = stored_bytes(*shape)
        lines.append(f"| {name} | {size:,} | {size / latent:.2f} |")
    return lines


def work_table() -> list[str]:
    one = MODELS[-1]
    d_nope = one.d_k - one.d_rope
    once = one.d_k + one.d_v  # a score, then a weighted sum of values
    latent = one.r + one.d_rope
    rows = {
        "keys and values of all heads": (one.H * (one.d_k + one.d_v), once),
        "latents, keys and values computed again in every step": (latent, once + one.r * (d_nope + one.d_v)),
        "latents, absorbed form": (latent, latent + one.r),
    }
    lines = [
        "| what is stored, and how it is used | stored numbers for a token | multiplications for a token and head |",
        "|---|---|---|",
    ]
    return [*lines, *(f"| {name} | {stored:,} | {count:,} |" for name, (stored, count) in rows.items())]


def main() -> None:
    page = PAGE.read_text("utf-8")
    for name, lines in tables().items():
        page = with_block(page, name, "\n".join(lines))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
