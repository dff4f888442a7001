"""The work to measure (a training step, an op, attention alone, generation), and our NumPy code for it."""

import importlib.util
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import numpy_attention.ops as ops
from numpy_attention.backend import get_backend
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.optimizers import AdamW
from numpy_attention.training.parallel import Workers, lock_is_on, loss_and_gradients

# name -> vocab_size, T, B, d_model, layers, heads
SIZES = {
    "nano": (65, 64, 16, 64, 2, 4),
    "micro": (65, 128, 32, 128, 4, 4),
    "small": (65, 256, 16, 384, 6, 6),
    "gpt2": (50257, 64, 4, 768, 12, 12),
}
LONG = {f"T = {T}": (65, T, 1, 384, 6, 6) for T in (4096, 16384)}  # one text
RATE, BETA_2, DECAY = 1e-3, 0.99, 0.1
HEADS, D_K = 8, 64  # of attention alone, with a batch of one
SHARED = {"w", "b", "gamma", "beta", "table"}  # used by all examples: gradients are sums over examples
NO_GRADIENT = {"ids", "targets"}
PROCESS_RESOURCES = ExitStack()  # a contender keeps them between its turns, until its process ends

Case = dict[str, Any]
Arrays = dict[str, np.ndarray]


class Work(NamedTuple):
    """A call to time, and the numbers that it computes; all contenders must compute the same numbers."""

    call: Callable[[], Any]
    results: Callable[[], list[float]]
    peak: Callable[[], int | None] | None = None  # bytes of memory, if other processes do the work


class Unavailable(Exception):
    """Raised with the reason why a contender cannot take part."""


def make(case: Case, variant: str, threads: int) -> Work:
    """Our code for a case: "ours" as in the training loop, "plain" as in textbooks, "products" the lower limit,
    "free-threaded" as ours, and refused if the interpreter has its lock.

    Raises: Unavailable if the lock is on.
    """
    if variant == "free-threaded" and lock_is_on():
        raise Unavailable("the interpreter lock is on; NUMPY_ATTENTION_FREE_THREADED must name a free-threaded Python")
    keep_freed_memory()  # as training and the commands do
    if case["kind"] in ("step", "long"):
        return _products_of_a_step(case, threads) if variant == "products" else _step(case, threads)
    if case["kind"] == "generation":
        return _generation(case, threads)
    if case["kind"] == "pretrained":
        from tests.benchmarks import pretrained  # not at the top: that module imports this one

        return pretrained.make(case, variant, threads)
    name, inputs, options = op_of(case, variant)
    return _op(name, inputs, options, threads)


def model_and_batches(size: str) -> tuple[GPT, list[tuple[np.ndarray, np.ndarray]]]:
    """The same weights and the same four batches for every contender."""
    V, T, B, d_model, layers, heads = (SIZES | LONG)[size]
    rng = np.random.default_rng(1)
    model = GPT(GPTConfig(V, T, d_model, heads, layers), rng)
    return model, [(ids, targets) for ids, targets in rng.integers(0, V, (4, 2, B, T))]


def generator_model() -> GPT:
    """The model that generates: 6 layers of 384, random weights large enough for a clear first choice."""
    model = GPT(GPTConfig(65, 2048, 384, 6, 6), np.random.default_rng(2))
    for name, p in model.parameters().items():
        if p.ndim == 2:
            p *= 4.0 if "table" in name else 2.0
    return model


def _step(case: Case, threads: int) -> Work:
    backend = get_backend(case.get("backend", "numpy"))
    model, batches = model_and_batches(case["size"])
    model.to(backend)
    shards = threads if backend.name == "numpy" else 1
    workers = PROCESS_RESOURCES.enter_context(Workers(shards))
    optimizer = AdamW(model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY, workers=workers)
    turns = iter(range(10**9))

    def step() -> float:
        loss, grads = loss_and_gradients(model, batches[next(turns) % 4], shards, workers, [None] * shards)
        optimizer.step(grads)
        return float(loss)

    return Work(step, lambda: [step() for _ in range(1 if case["kind"] == "long" else 3)])


def bytes_of_all_weights(size: str) -> int:
    """Bytes of a step that stores all attention weights for the backward, with the gradient of one layer's weights."""
    _, T, B, _, layers, heads = LONG[size]
    return 4 * B * heads * T * T * (layers + 1)


def products_of(size: str, shards: int = 1) -> list[tuple[int, int, int, int, int]]:
    """All matrix products of a step: (times, n, a, b, c) is `times` times n matrices (a, b) by n matrices (b, c)."""
    V, T, B, d, layers, H = SIZES[size]
    B //= shards
    d_k = d // H
    found = []
    for times, d_in, d_out in ((4 * layers, d, d), (layers, d, 4 * d), (layers, 4 * d, d), (1, d, V)):
        # y = x w, dx = dy w^T, dw = x^T dy
        found += [(times, 1, B * T, d_in, d_out), (times, 1, B * T, d_out, d_in), (times, 1, d_in, B * T, d_out)]
    # scores = q k^T and dweights = dy v^T; y = weights v and the three gradients that sum over T
    return [*found, (2 * layers, B * H, T, d_k, T), (4 * layers, B * H, T, T, d_k)]


def floating_point_operations(size: str) -> int:
    """Count the operations in the products of a step: a multiplication and an addition for each term of each sum."""
    return sum(2 * times * n * a * b * c for times, n, a, b, c in products_of(size))


def _products_of_a_step(case: Case, threads: int) -> Work:
    """The lower limit: only the matrix products of a step, with one shard of the batch per thread."""
    rng = np.random.default_rng(0)
    shapes = products_of(case["size"], threads)
    factors = [
        (times, rng.standard_normal((n, a, b), np.float32), rng.standard_normal((n, b, c), np.float32))
        for times, n, a, b, c in shapes
    ]
    outs = [[np.empty((n, a, c), np.float32) for _, n, a, _, c in shapes] for _ in range(threads)]
    workers = PROCESS_RESOURCES.enter_context(Workers(threads))

    def one(i: int) -> None:
        for (times, left, right), out in zip(factors, outs[i], strict=True):
            for _ in range(times):
                np.matmul(left, right, out=out)

    return Work(lambda: list(workers.map(one, range(threads))), list)


def prompts(case: Case) -> np.ndarray:
    """The prompts of the generation, (batch, prompt)."""
    return np.random.default_rng(case["prompt"]).integers(0, 65, (case["batch"], case["prompt"]))


def lend_threads(threads: int, blas_threads: int | None = None) -> None:
    """Let `share` use all threads until the process ends; BLAS uses `blas_threads`, or all threads."""
    if importlib.util.find_spec("threadpoolctl") is None:  # BLAS would keep its number of threads
        raise Unavailable("threadpoolctl is not installed: pip install '.[bench]'")
    workers = PROCESS_RESOURCES.enter_context(Workers(threads))
    PROCESS_RESOURCES.enter_context(workers.lent(blas_threads))


def _generation(case: Case, threads: int) -> Work:
    lend_threads(threads, blas_threads=1)
    model, ids = generator_model(), prompts(case)

    def generate(num_tokens: int) -> list[float]:
        texts = model.generate(ids, num_tokens, temperature=0.0, use_cache=case["cache"])
        return [float(token) for text in texts for token in text[case["prompt"] :]]

    return Work(lambda: generate(case["tokens"]), lambda: generate(8))


def normal(*shape: int) -> np.ndarray:
    """Random numbers that depend only on the shape."""
    return np.asarray(np.random.default_rng(list(shape)).standard_normal(shape, dtype=np.float32))


def op_of(case: Case, variant: str = "ours") -> tuple[str, Arrays, dict[str, Any]]:
    """The op of a case, its inputs and its options."""
    if case["kind"] == "attention":
        T, causal = case["T"], case["causal"]
        heads = {name: normal(HEADS, T, D_K) + shift for name, shift in (("q", 0), ("k", 1), ("v", -1))}
        if variant == "plain":
            return "scaled_dot_product_attention", heads, {"mask": ops.causal_mask(T) if causal else None}
        return "tiled_attention", heads, {"causal": causal}
    return OPS[case["name"]]()


def _ids(V: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(V).integers(0, V, shape)


def _norm(*names: str) -> Arrays:
    return {"x": normal(4096, 768), **{name: normal(768) + shift for shift, name in enumerate(names)}}


def _heads(B: int = 16, H: int = 6, T: int = 256) -> Arrays:
    return {name: normal(B, H, T, 64) + shift for name, shift in (("q", 0), ("k", 1), ("v", -1))}


OPS: dict[str, Callable[[], tuple[str, Arrays, dict[str, Any]]]] = {
    "linear (4096, 768) by (768, 3072)": lambda: (
        "linear", {"x": normal(4096, 768), "w": normal(768, 3072), "b": normal(3072)}, {},
    ),
    "layer_norm (4096, 768)": lambda: ("layer_norm", _norm("gamma", "beta"), {}),
    "rms_norm (4096, 768)": lambda: ("rms_norm", _norm("gamma"), {}),
    "softmax (4096, 768)": lambda: ("softmax", _norm(), {}),
    "gelu, tanh (4096, 768)": lambda: ("gelu", _norm(), {}),
    "gelu, exact (4096, 768)": lambda: ("gelu", _norm(), {"approximate": "none"}),
    "silu (4096, 768)": lambda: ("silu", _norm(), {}),
    "relu (4096, 768)": lambda: ("relu", _norm(), {}),
    "embedding, V = 65": lambda: ("embedding", {"ids": _ids(65, 16, 256), "table": normal(65, 768)}, {}),
    "embedding, V = 50257": lambda: ("embedding", {"ids": _ids(50257, 16, 256), "table": normal(50257, 768)}, {}),
    "cross_entropy (4096, 768)": lambda: (
        "cross_entropy", {"logits": normal(4096, 768), "targets": _ids(768, 4096)}, {},
    ),
    "cross_entropy (256, 50257)": lambda: (
        "cross_entropy", {"logits": normal(256, 50257), "targets": _ids(50257, 256)}, {},
    ),
    "attention, causal (16, 6, 256, 64)": lambda: (
        "scaled_dot_product_attention", _heads(), {"mask": ops.causal_mask(256)},
    ),
    "tiled_attention, causal (16, 6, 256, 64)": lambda: ("tiled_attention", _heads(), {"causal": True}),
}  # fmt: skip


def _op(name: str, inputs: Arrays, options: dict[str, Any], threads: int) -> Work:
    """Forward and backward with one shard of the batch per thread, as in the training loop."""
    forward, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
    cut = {n: [a] * threads if n in SHARED else np.array_split(a, threads) for n, a in inputs.items()}
    dy = cotangent(name, inputs)
    # dy of a mean over the batch: all shards have the same size
    dys = np.array_split(dy, threads) if dy.ndim else [dy / np.float32(threads)] * threads
    wanted = [n for n in inputs if n not in NO_GRADIENT]
    workers = PROCESS_RESOURCES.enter_context(Workers(threads))

    def one(i: int) -> tuple[np.ndarray, ...]:
        y, cache = forward(**{n: parts[i] for n, parts in cut.items()}, **options)
        grads = backward(dys[i], cache)
        return (y, *(g for g in grads if g is not None)) if isinstance(grads, tuple) else (y, grads)

    def call() -> list[tuple[np.ndarray, ...]]:
        found = list(workers.map(one, range(threads)))
        for at, n in enumerate(wanted, start=1):
            if n in SHARED:
                for other in found[1:]:
                    found[0][at][...] += other[at]
        return found

    def results() -> list[float]:
        columns = list(zip(*call(), strict=True))
        value = float(np.mean(columns[0])) if not dy.ndim else _norm_of(columns[0])
        shared = [n in SHARED for n in wanted]
        return [value, *(_norm_of(c[:1] if s else c) for c, s in zip(columns[1:], shared, strict=True))]

    return Work(call, results)


def cotangent(name: str, inputs: Arrays) -> np.ndarray:
    """dy for an op: random numbers of the shape of its result, 1 for a loss."""
    if name == "cross_entropy":
        return np.ones((), np.float32)
    if name == "embedding":
        return normal(*inputs["ids"].shape, inputs["table"].shape[1])
    if name == "linear":
        return normal(*inputs["x"].shape[:-1], inputs["w"].shape[1])
    return normal(*next(iter(inputs.values())).shape)[::-1].copy()


def _norm_of(parts: Any) -> float:
    rows = (row.reshape(-1).astype(np.float64) for part in parts for row in part)
    return math.sqrt(sum(float(np.dot(row, row)) for row in rows))
