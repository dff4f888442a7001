"""A GPT's training step (forward, backward, AdamW) against PyTorch eager and against the matrix products alone.

    python tests/benchmarks/bench_step.py                    # nano, micro, small, gpt2
    python tests/benchmarks/bench_step.py nano micro

Ours runs as the training loop runs it: the batch in one shard a thread, BLAS held to one thread each. The floor is
every matrix product of the step, forward and backward, with nothing around them, threaded in the same way.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from numpy_attention.models import GPT, GPTConfig
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.optimizers import AdamW
from numpy_attention.training.parallel import Workers, loss_and_gradients
from tests.benchmarks.timing import Contender, Result, blas_threads, compare, machine, milliseconds, table, torch_with

# name -> vocab_size, T, B, d_model, layers, heads
SIZES = {
    "nano": (65, 64, 16, 64, 2, 4),
    "micro": (65, 128, 32, 128, 4, 4),
    "small": (65, 256, 16, 384, 6, 6),
    "gpt2": (50257, 64, 4, 768, 12, 12),
}
RATE, BETA_2, DECAY = 1e-3, 0.99, 0.1


def products(V: int, T: int, B: int, d: int, layers: int, H: int) -> list[tuple[int, int, int, int, int]]:
    """Every product of a step of a batch of B, as (times, n, a, b, c): n matrices (a, b) by n matrices (b, c)."""
    linears = [(4 * layers, d, d), (layers, d, 4 * d), (layers, 4 * d, d), (1, d, V)]
    found = []
    for times, d_in, d_out in linears:
        # y = x w, dx = dy w^T, dw = x^T dy
        found += [(times, 1, B * T, d_in, d_out), (times, 1, B * T, d_out, d_in), (times, 1, d_in, B * T, d_out)]
    d_k = d // H
    # scores = q k^T and dweights = dy v^T; y = weights v and the three gradients that sum over T
    found += [(2 * layers, B * H, T, d_k, T), (4 * layers, B * H, T, T, d_k)]
    return found


def floor(size: tuple[int, ...], threads: int, workers: Workers) -> tuple[Callable[[], Any], float]:
    """A function that makes all products of a step, one shard a thread, and how many GFLOP they are."""
    V, T, B, *rest = size
    shard = products(V, T, B // threads, *rest)
    work = sum(2 * times * n * a * b * c for times, n, a, b, c in products(V, T, B, *rest)) / 1e9
    rng = np.random.default_rng(0)
    pairs = [
        (times, rng.standard_normal((n, a, b), np.float32), rng.standard_normal((n, b, c), np.float32))
        for times, n, a, b, c in shard
    ]
    outs = [[np.empty((n, a, c), np.float32) for _, n, a, _, c in shard] for _ in range(threads)]

    def one(i: int) -> None:
        for (times, left, right), out in zip(pairs, outs[i], strict=True):
            for _ in range(times):
                np.matmul(left, right, out=out)

    return lambda: list(workers.map(one, range(threads))), work


def measure(name: str, rounds: int, threads: int, workers: Workers) -> tuple[dict[str, Result], float, list[float]]:
    from tests.benchmarks.torch_gpt import TorchRun

    V, T, B, d_model, layers, heads = size = SIZES[name]
    rng = np.random.default_rng(1)
    model = GPT(GPTConfig(V, T, d_model, heads, layers), rng)
    batches = [tuple(rng.integers(0, V, (2, B, T))) for _ in range(4)]
    theirs = TorchRun(model, RATE, BETA_2, DECAY)
    optimizer = AdamW(model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY)
    optimizer.workers = workers
    turns = {"ours": 0, "theirs": 0}

    def our_step() -> float:
        turns["ours"] += 1
        loss, grads = loss_and_gradients(model, batches[turns["ours"] % 4], threads, workers, [None] * threads)
        optimizer.step(grads)
        return loss

    def their_step() -> float:
        turns["theirs"] += 1
        return theirs.step(*batches[turns["theirs"] % 4])

    with blas_threads(1)():
        losses = [our_step() for _ in range(3)]
    for i, loss in enumerate(losses):
        other = their_step()
        if abs(loss - other) > 2e-4 * other:
            raise SystemExit(f"{name}: loss {i + 1} is {loss:.6f} here and {other:.6f} in PyTorch: not the same work")
    products_alone, work = floor(size, threads, workers)
    contenders = {
        "PyTorch": Contender(their_step),
        "numpy_attention": Contender(our_step, blas_threads(1)),
        "floor": Contender(products_alone, blas_threads(1)),
    }
    return compare(contenders, rounds), work, losses


def main() -> None:
    parser = argparse.ArgumentParser(description="a GPT's training step against PyTorch eager and the products alone")
    parser.add_argument("sizes", nargs="*", default=list(SIZES), help="of nano, micro, small, gpt2; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for name in args.sizes:
        if name not in SIZES:
            parser.error(f"no size {name!r}; there are {', '.join(SIZES)}")
    torch = torch_with(args.threads)
    keep_freed_memory()   # for both sides, as they share this process

    def rows(workers: Workers) -> Iterator[list[str]]:
        for name in args.sizes:
            results, work, losses = measure(name, args.rounds, args.threads, workers)
            theirs, ours, alone = results.values()
            yield [
                name, *map(milliseconds, (theirs, ours, alone)), f"{work / alone.seconds:.0f} GFLOP/s",
                f"**{ours.ratio:.2f}**", f"{ours.ratio / alone.ratio:.2f}", ", ".join(f"{loss:.4f}" for loss in losses),
            ]

    print(machine(args.threads, torch) + "\n")
    head = ["step", "PyTorch eager, ms", "numpy_attention, ms", "its products alone, ms", "their rate"]
    with Workers(args.threads) as workers:
        table([*head, "ratio to PyTorch", "to the products", "first losses, both sides"], rows(workers))


if __name__ == "__main__":
    main()
