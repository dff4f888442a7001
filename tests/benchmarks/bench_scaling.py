"""How a training step scales over threads and ranks: measurements, and a model that predicts up to 1,024 ranks.

    python -m tests.benchmarks.bench_scaling measure    needs the extra `mpi`; writes scaling.json in about two minutes
    python -m tests.benchmarks.bench_scaling page       writes the tables and the picture of docs/scaling.md

The step is the step of `train`: gradients of shards, one Allreduce, one AdamW step on every rank. A step lasts from
one barrier to the next, so it ends when the slowest rank has finished. Other work on the machine can only make a step
longer, so the result is the shortest of REPEATS steps in ROUNDS rounds of all measurements.
"""

import functools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import numpy_attention as na
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.mpi import started_ranks
from numpy_attention.training.parallel import Workers, loss_and_gradients, usable_cores

HERE = Path(__file__)
ROOT = HERE.parents[2]
RESULTS = HERE.with_name("scaling.json")
PAGE, PICTURE = ROOT / "docs" / "scaling.md", ROOT / "docs" / "_static" / "scaling.svg"
REPEATS, ROUNDS = 5, 3
CASES = {  # sizes, examples in the batch of a step
    "long": ({"vocab_size": 103, "context_length": 256, "d_model": 128, "num_heads": 4, "num_layers": 4}, 16),
    "wide": ({"vocab_size": 103, "context_length": 32, "d_model": 512, "num_heads": 8, "num_layers": 2}, 8),
}
MESSAGES = [2**k for k in (3, 10, 14, 17, 20, 22, 24, 25)]  # bytes
# latency in seconds, bytes per second
NETWORKS = {"10 Gbit/s Ethernet": (30e-6, 1.25e9), "100 Gbit/s InfiniBand": (2e-6, 12.5e9)}
RANKS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def make(case):
    """The model of a case, its optimizer, and the batch, which is the same on all ranks."""
    sizes, examples = CASES[case]
    rng = np.random.default_rng(0)
    model = na.GPT(na.GPTConfig(**sizes, positions="rotary"), rng)
    batch = tuple(rng.integers(0, sizes["vocab_size"], (2, examples, sizes["context_length"])))
    return model, na.AdamW(model.parameters()), batch


def steps(case, threads, examples=None, exchange=True):
    """Seconds of a step and of its parts, on rank 0; with exchange=False the ranks do not exchange gradients."""
    ranks, (model, optimizer, batch) = started_ranks(), make(case)
    batch = tuple(array[: examples or len(array)] for array in batch)
    barrier = getattr(getattr(ranks, "comm", None), "Barrier", lambda: None)
    count, times = ranks.size * threads, []
    with Workers(threads) as workers:
        for _ in range(REPEATS + 2):
            barrier()
            start = time.perf_counter()
            mine = ranks.share(count)
            loss, grads = loss_and_gradients(model, batch, count, workers, [None] * count, mine)
            computed = time.perf_counter()
            if exchange:
                loss, grads, _ = ranks.total(model.parameters(), loss, grads, None)
            exchanged = time.perf_counter()
            optimizer.step(grads)
            updated = time.perf_counter()
            barrier()
            times.append((time.perf_counter() - start, computed - start, exchanged - computed, updated - exchanged))
    names = ("step", "compute", "talk", "update")
    return dict(zip(names, [min(part) for part in zip(*times[2:], strict=True)]))


def messages():
    """Seconds of an Allreduce of each size, and of a computation with an Allreduce during or after the computation."""
    from mpi4py import MPI

    comm, out = MPI.COMM_WORLD, {}
    for size in MESSAGES:
        buffer, times = np.zeros(size // 4, np.float32), []
        for _ in range(7 if size > 2**20 else 50):
            comm.Barrier()
            start = time.perf_counter()
            comm.Allreduce(MPI.IN_PLACE, buffer)
            times.append(time.perf_counter() - start)
        out[str(size)] = min(times)
    model, _, batch = make("wide")
    times = {"after": [], "beneath": []}
    for i in range(2 * REPEATS):
        comm.Barrier()
        start = time.perf_counter()
        request = comm.Iallreduce(MPI.IN_PLACE, buffer) if i % 2 else None
        model.backward(model.loss(*(array[:2] for array in batch))[1])
        if request is None:
            comm.Allreduce(MPI.IN_PLACE, buffer)
        else:
            request.Wait()
        times["beneath" if i % 2 else "after"].append(time.perf_counter() - start)
    return {"allreduce": out, "overlap": {name: min(seconds) for name, seconds in times.items()}}


def run(ranks, *arguments):
    """Run one worker process, or `ranks` of them with MPI; return the result that it prints."""
    python = [sys.executable, *(["-m", "mpi4py"] if ranks else []), str(HERE), "worker", *map(str, arguments)]
    launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)] if ranks else []
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*launcher, *python], env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def shortest(one, other):
    """Combine two rounds of measurements: keep the smaller value of each number."""
    if isinstance(one, dict):
        return {key: shortest(value, other[key]) for key, value in one.items()}
    return min(one, other)


def measure():
    """One round of all measurements of the page."""
    found = {"cores": usable_cores(), "cases": {}, "messages": {n: run(n, "messages") for n in (2, 4)}}
    for case, (_, examples) in CASES.items():
        model = make(case)[0]
        found["cases"][case] = {
            "parameters": model.num_parameters(),
            "examples": examples,
            "alone": {b: run(0, case, 1, b) for b in (examples, examples // 2, 1)},
            "busy": run(2, case, 1, examples, "quiet"),
            "threads": {k: run(0, case, k) for k in (1, 2)},
            "ranks": {n: run(n, case, 1) for n in (1, 2, 4)},
        }
    return found


def constants(found, case):
    """Constants of the model: compute = c_0 + c_1 b for b examples, update, bytes, slowdown with two busy cores."""
    data = found["cases"][case]
    b = np.array([float(n) for n in data["alone"]])
    seconds = np.array([data["alone"][n]["compute"] for n in data["alone"]])
    (c_1, c_0), half = np.polyfit(b, seconds, 1), str(data["examples"] // 2)
    return {
        "c_0": max(c_0, 0.0), "c_1": c_1, "examples": data["examples"], "bytes": 4 * data["parameters"],
        "update": min(data["alone"][n]["update"] for n in data["alone"]),
        "slower": max(1.0, data["busy"]["compute"] / data["alone"][half]["compute"]),
        "slower_update": max(1.0, data["busy"]["update"] / data["alone"][half]["update"]),
    }  # fmt: skip


def link(found):
    """Latency and bandwidth between two ranks of this machine, from the shortest and longest Allreduce."""
    seconds = found["messages"]["2"]["allreduce"]
    longest = max(MESSAGES)
    return seconds["8"] / 2, longest / (seconds[str(longest)] - seconds["8"])


def allreduce(ranks, size, latency, bandwidth):
    """Seconds to sum `size` bytes over all ranks: 2 log2 P messages; each rank sends 2 (P - 1) / P of the bytes."""
    if ranks == 1:
        return 0.0
    return 2 * math.ceil(math.log2(ranks)) * latency + 2 * (ranks - 1) / ranks * size / bandwidth


def predict(k, ranks, latency, bandwidth, cores, examples=None):
    """Seconds of a step; if there are more ranks than cores, they take turns at all work, also at the Allreduce."""
    turns = math.ceil(ranks / cores)
    compute = k["c_0"] + k["c_1"] * (examples or k["examples"]) / ranks
    busy = ranks > 1
    compute *= k["slower"] if busy else 1.0
    update = k["update"] * (k["slower_update"] if busy else 1.0)
    return turns * (compute + update + allreduce(ranks, k["bytes"], latency, bandwidth))


def predict_threads(k, threads):
    """Seconds of a step with threads: the threads do not divide the update and the sum of the gradients."""
    return (k["c_0"] + k["c_1"] * k["examples"] / threads) * (k["slower"] if threads > 1 else 1.0) + k["update"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        keep_freed_memory()
        what = sys.argv[2:]
        result = messages() if what == ["messages"] else steps(
            what[0], int(what[1]), int(what[2]) if len(what) > 2 else None, exchange=len(what) < 4)
        if started_ranks().rank == 0:
            print(json.dumps(result))
    elif sys.argv[1:] == ["measure"]:
        rounds = [measure() for _ in range(ROUNDS)]
        RESULTS.write_text(json.dumps(functools.reduce(shortest, rounds), indent=1) + "\n")
    elif sys.argv[1:] == ["page"]:
        from tests.benchmarks.scaling_page import write

        write(json.loads(RESULTS.read_text("utf-8")))
    else:
        sys.exit(__doc__)
