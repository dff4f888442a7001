"""The work to measure, and the code of this book for it: training steps, attention alone, a real model."""

import functools
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import numpy_attention as na
from numpy_attention.backend import get_backend
from numpy_attention.models.c23b_generate import stream
from numpy_attention.pretrained.c36_load import load_pretrained
from numpy_attention.pretrained.c37_low_rank import add_low_rank
from numpy_attention.pretrained.fetch import located
from numpy_attention.training.c27_data import default_text
from numpy_attention.training.c30_parallel import Workers, loss_and_gradients

SIZES = {  # vocab_size, T, B, d_model, layers, heads
    "nano": (65, 64, 16, 64, 2, 4),
    "micro": (65, 128, 32, 128, 4, 4),
    "small": (65, 256, 16, 384, 6, 6),
    "gpt2": (50257, 64, 4, 768, 12, 12),
    "T = 4096": (65, 4096, 1, 384, 6, 6),  # one long text
    "T = 16384": (65, 16384, 1, 384, 6, 6),
}
RATE, BETA_2, DECAY = 1e-3, 0.99, 0.1
HEADS, D_K = 8, 64  # of attention alone, with a batch of one
MODEL, RANK, TEXTS = "smollm2", 8, 4  # the real model; rank and texts of a LoRA step
RESOURCES = ExitStack()  # threads that serve until the process ends

Case = dict[str, Any]
Batch = tuple[np.ndarray, np.ndarray]


class Work(NamedTuple):
    """A call to time, and the numbers that it computes; all contenders must compute the same numbers."""

    call: Callable[[], Any]
    results: Callable[[], list[float]]


def make(case: Case, variant: str, threads: int) -> Work:
    """The work of a case as in training and in the commands; the variant "plain" is attention without tiles."""
    keep_freed_memory()
    if case["kind"] == "attention":
        return attention(case["T"], variant == "plain", threads)
    if case["kind"] == "pretrained":
        return pretrained(case, threads)
    model, batches = model_and_batches(case["name"])
    backend = get_backend(case.get("backend", "numpy"))
    return training(model.to(backend), batches, threads if backend.name == "numpy" else 1)


def keep_freed_memory() -> None:
    """As in training; versions of the book differ in whether they have this function."""
    try:
        from numpy_attention.training.memory import keep_freed_memory as keep
    except ImportError:
        return
    keep()


def model_and_batches(size: str) -> tuple[na.GPT, list[Batch]]:
    """The same weights and the same four batches for every contender."""
    V, T, B, d_model, layers, heads = SIZES[size]
    rng = np.random.default_rng(1)
    model = na.GPT(na.GPTConfig(V, T, d_model, heads, layers), rng)
    return model, [(ids, targets) for ids, targets in rng.integers(0, V, (4, 2, B, T))]


def training(model: Any, batches: list[Batch], threads: int) -> Work:
    """Steps with one shard of the batch for each thread."""
    workers = RESOURCES.enter_context(Workers(threads))
    optimizer = na.AdamW(model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY)
    return steps(lambda batch: step(model, batch, threads, workers, optimizer), batches)


def step(model: Any, batch: Batch, threads: int, workers: Workers, optimizer: na.AdamW) -> float:
    """Forward, backward and AdamW; the loss."""
    loss, grads = loss_and_gradients(model, batch, threads, workers, [None] * threads)
    with workers.sharing(model.num_parameters()):
        optimizer.step(grads)
    return float(loss)


def steps(one: Callable[[Batch], float], batches: list[Batch]) -> Work:
    """The work of a training step: the batches take turns; the results are the first losses."""
    turns = iter(range(10**9))

    def call() -> float:
        return one(batches[next(turns) % len(batches)])

    return Work(call, lambda: [call() for _ in range(1 if batches[0][0].shape[1] > 1024 else 3)])


def heads_of(T: int) -> dict[str, np.ndarray]:
    """q, k, v and dy (HEADS, T, D_K), the same for every contender."""
    q, k, v, dy = np.random.default_rng(T).standard_normal((4, HEADS, T, D_K), np.float32)
    return {"q": q, "k": k + 1, "v": v - 1, "dy": dy}


def attention(T: int, plain: bool, threads: int) -> Work:
    """Causal attention, forward and backward; each thread has its share of the heads."""
    shards = [dict(zip("qkvd", parts)) for parts in zip(*(np.array_split(x, threads) for x in heads_of(T).values()))]
    mask = na.causal_mask(T) if plain else None
    workers = RESOURCES.enter_context(Workers(threads))

    def one(x: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        if plain:
            y, cache = na.scaled_dot_product_attention(x["q"], x["k"], x["v"], mask=mask)
            return (y, *na.scaled_dot_product_attention_backward(x["d"], cache)[:3])
        y, cache = na.tiled_attention(x["q"], x["k"], x["v"], causal=True)
        return (y, *na.tiled_attention_backward(x["d"], cache)[:3])

    def call() -> list[tuple[np.ndarray, ...]]:
        return list(workers.map(one, shards))

    return Work(call, lambda: [norm(*parts) for parts in zip(*call())])


def norm(*parts: np.ndarray) -> float:
    """The norm of all parts together."""
    return math.sqrt(sum(float(np.sum(part.astype(np.float64) ** 2)) for part in parts))


def pretrained(case: Case, threads: int) -> Work:
    """SmolLM2: read a prompt, write tokens one by one after a short prompt, or a LoRA step."""
    model, ids = real_model()
    if case["name"] == "LoRA step":
        add_low_rank(model, RANK, rng=np.random.default_rng(0))
        return training(model, lora_batches(ids, case["tokens"]), threads)
    prompt, written = (ids[: case["tokens"]], 1) if case["name"] == "prompt" else (ids[:16], case["tokens"])

    def write(count: int) -> list[float]:
        return [float(token) for token in stream(model, prompt, count, temperature=0.0)]

    return Work(lambda: write(written), lambda: write(min(written, 32)))


@functools.cache
def real_model() -> tuple[na.GPT, np.ndarray]:
    """The model, and the ids of an English text that is part of every Python."""
    model, tokenizer = load_pretrained(located(MODEL))
    return model, tokenizer.encode(default_text()[:20_000])


def lora_batches(ids: np.ndarray, tokens: int) -> list[Batch]:
    """Four batches from the beginning of a text; the targets are the ids one step later."""
    T = tokens // TEXTS
    rows = ids[: 4 * TEXTS * (T + 1)].reshape(4, TEXTS, T + 1)
    return [(batch[:, :-1], batch[:, 1:]) for batch in rows]
