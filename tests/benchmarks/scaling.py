"""How a training step scales over threads and ranks: the times of docs/scaling.md and the constants of its cost model.

    python -m tests.benchmarks.scaling      # needs the extra `mpi`; two minutes

The step is the step of `train`: gradients of shards, one Allreduce, one AdamW step on every rank. A step lasts from
one barrier to the next, so it ends when the slowest rank has finished. Other work on the machine can only make a step
longer, so each result is the shortest of REPEATS steps in ROUNDS rounds of all measurements.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import numpy_attention as na
from numpy_attention.training.mpi import started_ranks
from numpy_attention.training.parallel import Workers, loss_and_gradients
from tests.benchmarks.ours import keep_freed_memory

ROOT = Path(__file__).parents[2]
REPEATS, ROUNDS = 5, 3
CASES = {  # sizes, examples in the batch of a step
    "long": ({"vocab_size": 103, "context_length": 256, "d_model": 128, "num_heads": 4, "num_layers": 4}, 16),
    "wide": ({"vocab_size": 103, "context_length": 32, "d_model": 512, "num_heads": 8, "num_layers": 2}, 8),
}
PARTS = ("step", "compute", "talk", "update")


def steps(case: str, threads: int, examples: int) -> list[float]:
    """Seconds of a step and of its parts, on rank 0."""
    keep_freed_memory()
    sizes, _ = CASES[case]
    rng, ranks = np.random.default_rng(0), started_ranks()
    model: Any = na.GPT(na.GPTConfig(**sizes, positions="rotary"), rng)
    optimizer = na.AdamW(model.parameters())
    batch = tuple(rng.integers(0, sizes["vocab_size"], (2, examples, sizes["context_length"])))
    barrier = getattr(getattr(ranks, "comm", None), "Barrier", lambda: None)
    count, times = ranks.size * threads, []
    with Workers(threads) as workers:
        for _ in range(REPEATS + 2):
            barrier()
            start = time.perf_counter()
            loss, grads = loss_and_gradients(model, batch, count, workers, [None] * count, ranks.share(count))
            computed = time.perf_counter()
            loss, grads, _ = ranks.total(model.parameters(), loss, grads, None)
            exchanged = time.perf_counter()
            optimizer.step(grads)
            updated = time.perf_counter()
            barrier()
            times.append((time.perf_counter() - start, computed - start, exchanged - computed, updated - exchanged))
    return [min(part) for part in zip(*times[2:], strict=True)]


def run(ranks: int, *arguments: object) -> list[float]:
    """The result of `steps` in a new process, or in `ranks` processes with MPI."""
    launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)] if ranks else []
    mpi = ["-m", "mpi4py"] if ranks else []
    command = [*launcher, sys.executable, *mpi, "-m", "tests.benchmarks.scaling", *map(str, arguments)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def main() -> None:
    """Measure everything and print two tables."""
    rows = {}
    for case, (_, examples) in CASES.items():
        rows |= {f"{case}, {n} threads": (0, case, n, examples) for n in (1, 2)}
        rows |= {f"{case}, {n} ranks": (n, case, 1, examples) for n in (1, 2, 4)}
        rows |= {f"{case}, {n} examples": (0, case, 1, n) for n in (examples // 2, 1)}
    rounds = [{name: run(*arguments) for name, arguments in rows.items()} for _ in range(ROUNDS)]
    found = {name: [min(seconds) for seconds in zip(*(one[name] for one in rounds))] for name in rows}
    print(f"| | {' | '.join(f'{part}, ms' for part in PARTS)} | speed-up |\n|---|---|---|---|---|---|")
    for name, seconds in found.items():
        alone = found[f"{name.partition(',')[0]}, 1 threads"][0]
        print(f"| {name} | {' | '.join(f'{1e3 * s:.1f}' for s in seconds)} | {alone / seconds[0]:.2f} |")
    for case, (_, examples) in CASES.items():  # compute = c_0 + c_1 examples
        sizes = {f"{case}, 1 threads": examples, f"{case}, {examples // 2} examples": examples // 2,
                 f"{case}, 1 examples": 1}  # fmt: skip
        c_1, c_0 = 1e3 * np.polyfit(list(sizes.values()), [found[name][1] for name in sizes], 1)
        print(f"{case}: c_0 = {c_0:.1f} ms, c_1 = {c_1:.1f} ms, u = {1e3 * found[f'{case}, 1 threads'][3]:.1f} ms")


if __name__ == "__main__":
    if sys.argv[1:]:
        result = steps(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        if started_ranks().rank == 0:
            print(json.dumps(result))
    else:
        main()
