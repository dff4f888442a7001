"""The cases that are compared with PyTorch: for every op its inputs, its options, and the arguments with a gradient.

All sizes are different, ids repeat, and masks hide a part of most rows. Every number is drawn once and rounded to
float16, so that a few bytes store it exactly. Both sides compute with it in float64.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """One comparison: `op(**inputs, **options)`, then its backward with a random dy."""

    op: str
    draw: Draw
    differentiable: tuple[str, ...]   # the arguments with a gradient, in the order the backward returns them
    options: dict[str, Any] = field(default_factory=dict)

    def inputs(self, name: str) -> dict[str, np.ndarray]:
        return self.draw(np.random.default_rng(zlib.crc32(name.encode())))


def normal(rng: np.random.Generator, *shape: int, size: float = 1.0) -> np.ndarray:
    return np.asarray(size * rng.standard_normal(shape), np.float16).astype(np.float64)


def uniform(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """The draws of dropout: a number is dropped if its draw is below the rate."""
    return rng.random(shape).astype(np.float16).astype(np.float64)


def arrays(**shapes: tuple[int, ...]) -> Draw:
    return lambda rng: {name: normal(rng, *shape) for name, shape in shapes.items()}


def heads(*lead: int, T_q: int, T_k: int, d_k: int, d_v: int, H_q: int, H_kv: int | None = None, **masks: Any) -> Draw:
    """Queries, keys and values, and optionally a mask or a bias of the given shape; `mask` hides three keys in ten."""

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        H = H_kv or H_q
        inputs = {
            "q": normal(rng, *lead, H_q, T_q, d_k),
            "k": normal(rng, *lead, H, T_k, d_k),
            "v": normal(rng, *lead, H, T_k, d_v),
        }
        if "mask" in masks:
            inputs["mask"] = rng.random(masks["mask"]) < 0.7
            inputs["mask"][..., 1] = True   # so that no row is completely hidden
            if masks.get("hidden_rows"):
                inputs["mask"][..., ::2, :] = False
        if "bias" in masks:
            inputs["bias"] = normal(rng, *masks["bias"])
        if masks.get("dropped"):
            inputs["draws"] = uniform(rng, *lead, H_q, T_q, T_k)
        return inputs

    return draw


def tokens(*shape: int, V: int, d_model: int) -> Draw:
    return lambda rng: {"ids": rng.integers(0, V, shape), "table": normal(rng, V, d_model)}


def rows(*shape: int, ignored: int = -100, share: float = 0.0, size: float = 1.0) -> Draw:
    """Logits, and targets of which `share` are ignored."""

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        targets = rng.integers(0, shape[-1], shape[:-1])
        targets[rng.random(shape[:-1]) < share] = ignored
        return {"logits": normal(rng, *shape, size=size), "targets": targets}

    return draw


def turned(*shape: int, first: int) -> Draw:
    return lambda rng: {"x": normal(rng, *shape), "positions": np.arange(first, first + shape[-2])}


def dropped_at_random(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": normal(rng, 4, 7), "draws": uniform(rng, 4, 7)}


def softmax_cases() -> dict[str, Case]:
    x = arrays(x=(3, 4, 5))
    cases = {f"softmax over axis {axis}": Case("softmax", x, ("x",), {"axis": axis}) for axis in (-1, 0, 1, -2)}
    large = {
        "near 1e4": lambda rng: {"x": 1e4 + rng.integers(-99, 99, (3, 7)) / 32},
        "up to 1e4": lambda rng: {"x": normal(rng, 3, 7, size=1e4)},
    }
    return cases | {f"softmax of scores {name}": Case("softmax", draw, ("x",)) for name, draw in large.items()}


def attention_cases() -> dict[str, Case]:
    sizes = {"T_q": 4, "T_k": 6, "d_k": 5, "d_v": 7, "H_q": 3}
    grouped = {**sizes, "H_q": 6, "H_kv": 2}
    draws: dict[str, tuple[Draw, dict[str, Any]]] = {
        "plain": (heads(2, **sizes), {}),
        "two leading axes": (heads(2, 3, **{**sizes, "H_q": 1}), {}),
        "no batch": (heads(**sizes), {}),
        "scale": (heads(2, **sizes), {"scale": 0.37}),
        "mask": (heads(2, **sizes, mask=(2, 3, 4, 6)), {}),
        "mask over the keys": (heads(2, **sizes, mask=(2, 1, 1, 6)), {}),
        "mask over queries and keys": (heads(2, **sizes, mask=(4, 6)), {}),
        "hidden rows": (heads(2, **sizes, mask=(2, 1, 4, 6), hidden_rows=True), {}),
        "bias": (heads(2, **sizes, bias=(2, 3, 4, 6)), {}),
        "bias of the heads": (heads(2, **sizes, bias=(3, 4, 6)), {}),
        "bias of the keys": (heads(2, **sizes, bias=(3, 1, 6)), {}),
        "mask and bias and scale": (heads(2, **sizes, mask=(2, 1, 4, 6), bias=(1, 3, 4, 6)), {"scale": 1.3}),
        "dropout": (heads(2, **sizes, dropped=True), {"dropout": 0.3}),
        "grouped queries": (heads(2, **grouped), {}),
        "grouped queries, mask and bias": (heads(2, **grouped, mask=(2, 1, 4, 6), bias=(6, 4, 6)), {}),
        "one head of keys": (heads(2, **{**grouped, "H_kv": 1}), {}),
    }
    return {
        f"attention, {name}": Case("scaled_dot_product_attention", draw, ("q", "k", "v", "bias"), options)
        for name, (draw, options) in draws.items()
    }


def tiled_cases() -> dict[str, Case]:
    sizes = {"T_q": 11, "T_k": 13, "d_k": 3, "d_v": 2, "H_q": 2}
    draws: dict[str, tuple[Draw, dict[str, Any]]] = {
        "plain": (heads(2, **sizes), {}),
        "causal": (heads(2, **{**sizes, "T_k": 11}), {"causal": True}),
        "causal, more keys than queries": (heads(2, **sizes), {"causal": True}),
        "mask": (heads(2, **sizes, mask=(2, 1, 11, 13)), {"scale": 0.8}),
        "mask and causal": (heads(1, **sizes, mask=(11, 13)), {"causal": True}),
        "grouped queries": (heads(2, **{**sizes, "H_q": 4, "H_kv": 2}), {"causal": True}),
    }
    return {
        f"tiled attention, {name}": Case("tiled_attention", draw, ("q", "k", "v"), {**options, "block_size": 4})
        for name, (draw, options) in draws.items()
    }


def loss_cases() -> dict[str, Case]:
    draws: dict[str, tuple[Draw, dict[str, Any]]] = {
        "plain": (rows(5, 7), {}),
        "batch and time": (rows(2, 3, 5), {}),
        "ignored targets": (rows(3, 4, 5, share=0.4), {}),
        "another ignore_index": (rows(3, 4, 5, ignored=2, share=0.3), {"ignore_index": 2}),
        "smoothed": (rows(4, 6), {"label_smoothing": 0.1}),
        "smoothed, ignored targets": (rows(3, 4, 5, share=0.4), {"label_smoothing": 0.3}),
        "logits up to 1e4": (rows(5, 7, size=1e4), {}),
    }
    return {
        f"cross-entropy, {name}": Case("cross_entropy", draw, ("logits",), options)
        for name, (draw, options) in draws.items()
    }


def by_rows(*shape: int, d: int, **targets: Any) -> Draw:
    """The targets of `rows`, and x and a table whose product gives the logits (..., V)."""

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        inputs = rows(*shape, **targets)(rng)
        return {"x": normal(rng, *shape[:-1], d), "table": normal(rng, shape[-1], d), "targets": inputs["targets"]}

    return draw


def loss_by_rows_cases() -> dict[str, Case]:
    draws: dict[str, tuple[Draw, dict[str, Any]]] = {
        "plain": (by_rows(5, 7, d=3), {"block_size": 2}),
        "ignored targets": (by_rows(3, 4, 5, d=2, share=0.4), {"block_size": 5}),
        "smoothed, ignored targets": (by_rows(3, 4, 5, d=6, share=0.4), {"label_smoothing": 0.3, "block_size": 1}),
    }
    return {
        f"cross-entropy by rows, {name}": Case("linear_cross_entropy", draw, ("x", "table"), options)
        for name, (draw, options) in draws.items()
    }


NORM = arrays(x=(4, 5), gamma=(5,), beta=(5,))

CASES: dict[str, Case] = {
    "linear": Case("linear", arrays(x=(2, 3, 5), w=(5, 7), b=(7,)), ("x", "w", "b")),
    "linear without bias": Case("linear", arrays(x=(4, 5), w=(5, 3)), ("x", "w", "b")),
    "linear on four axes": Case("linear", arrays(x=(2, 3, 4, 5), w=(5, 6), b=(6,)), ("x", "w", "b")),
    "embedding, ids repeat": Case("embedding", tokens(3, 5, V=7, d_model=4), ("table",)),
    "embedding, large vocabulary": Case("embedding", tokens(4, 9, V=3000, d_model=2), ("table",)),
    "sinusoidal positions": Case("sinusoidal_positions", lambda rng: {}, (), {"length": 7, "d_model": 6}),
    "sinusoidal positions, odd width": Case("sinusoidal_positions", lambda rng: {}, (), {"length": 5, "d_model": 7}),
    "rotary, halves": Case("rotary", turned(2, 3, 5, 8, first=3), ("x",)),
    "rotary, interleaved": Case("rotary", turned(2, 3, 5, 8, first=2), ("x",), {"pairing": "interleaved"}),
    "rotary, another base": Case("rotary", turned(3, 5, 6, first=0), ("x",), {"base": 50.0}),
    "split heads": Case("split_heads", arrays(x=(2, 5, 12)), ("x",), {"num_heads": 3}),
    "concat heads": Case("concat_heads", arrays(x=(2, 3, 5, 4)), ("x",)),
    "layer norm": Case("layer_norm", arrays(x=(2, 3, 6), gamma=(6,), beta=(6,)), ("x", "gamma", "beta")),
    "layer norm, eps": Case("layer_norm", NORM, ("x", "gamma", "beta"), {"eps": 0.2}),
    "rms norm": Case("rms_norm", arrays(x=(2, 3, 6), gamma=(6,)), ("x", "gamma")),
    "rms norm, eps": Case("rms_norm", arrays(x=(2, 3, 4, 5), gamma=(5,)), ("x", "gamma"), {"eps": 0.1}),
    "relu": Case("relu", arrays(x=(3, 4, 5)), ("x",)),
    "gelu, tanh": Case("gelu", arrays(x=(3, 4, 5)), ("x",), {"approximate": "tanh"}),
    "gelu, exact": Case("gelu", lambda rng: {"x": normal(rng, 3, 40, size=3.0)}, ("x",), {"approximate": "none"}),
    "dropout": Case("dropout", dropped_at_random, ("x",), {"rate": 0.3}),
    "silu": Case("silu", lambda rng: {"x": normal(rng, 3, 20, size=4.0)}, ("x",)),
    **softmax_cases(),
    **attention_cases(),
    **tiled_cases(),
    **loss_cases(),
    **loss_by_rows_cases(),
}
