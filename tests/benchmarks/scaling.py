"""How a training step scales over threads and ranks: measurements, and a model that predicts up to 1,024 ranks.

    python -m tests.benchmarks.scaling              needs the extra `mpi`; prints the tables of docs/scaling.md
    python -m tests.benchmarks.scaling --write      also writes them, and the picture, into the page
    python -m tests.benchmarks.scaling --predict    measures nothing: predicts again from the constants on the page

The step is the step of `train`: gradients of shards, one Allreduce, one AdamW step on every rank. A step lasts from
one barrier to the next, so it ends when the slowest rank has finished. Other work on the machine can only make a step
longer, so the result is the shortest of REPEATS steps in ROUNDS rounds of all measurements.
"""

import functools
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import numpy_attention as na
from numpy_attention.app.plots import COLOURS
from numpy_attention.training.c30_parallel import Workers, loss_and_gradients, usable_cores
from numpy_attention.training.c31_mpi import started_ranks
from numpy_attention.training.memory import keep_freed_memory
from tests.generated import with_block

HERE = Path(__file__)
ROOT = HERE.parents[2]
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
    barrier = ranks.mpi.COMM_WORLD.Barrier if ranks.mpi else lambda: None
    count, times = ranks.size * threads, []
    with Workers(threads) as workers:
        for _ in range(REPEATS + 2):
            barrier()
            start = time.perf_counter()
            mine = range(ranks.rank * threads, (ranks.rank + 1) * threads)
            loss, grads = loss_and_gradients(model, batch, count, workers, [None] * count, mine)
            computed = time.perf_counter()
            if exchange:
                loss, grads, _ = ranks.total(model.parameters(), loss, grads, False)
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
    }


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
    compute = (k["c_0"] + k["c_1"] * (examples or k["examples"]) / ranks) * (k["slower"] if ranks > 1 else 1.0)
    return turns * (compute + k["update"] + allreduce(ranks, k["bytes"], latency, bandwidth))


def predict_threads(k, threads):
    """Seconds of a step with threads: the threads do not divide the update and the sum of the gradients."""
    return (k["c_0"] + k["c_1"] * k["examples"] / threads) * (k["slower"] if threads > 1 else 1.0) + k["update"]


def tables(found):
    """The blocks of the page, by the names of the markers around them; the model uses the rounded constants."""
    lines = constants_table(found)
    each, here = shown_constants("\n".join(lines))
    return {"constants": lines, "measured": measured_table(found, each, here), "predicted": predicted_table(each),
            "overlap": overlap_table(found)}


def read_block(page, name):
    """The text between the markers of a block of the page."""
    return page.partition(f"<!-- {name} -->")[2].partition(f"<!-- end of {name} -->")[0]


def shown_constants(text):
    """The constants of each case, and the link of this machine, as the block `constants` of the page shows them."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "long" not in line]
    names = {"bytes": 1e6, "examples": 1, "c_0": 1e-3, "c_1": 1e-3, "update": 1e-3, "slower": 1}
    columns = zip(*([float(cell) for cell in cells] for _, *cells in rows), strict=True)
    each = {
        case: {name: unit * value for (name, unit), value in zip(names.items(), column, strict=True)}
        for case, column in zip(CASES, columns, strict=True)
    }
    latency, bandwidth = re.search(r"\$L\$ = (\S+) µs and \$W\$ = (\S+) GB/s", text).groups()
    return each, (1e-6 * float(latency), 1e9 * float(bandwidth))


def constants_table(found):
    latency, bandwidth = link(found)
    lines = ["| | long | wide |", "|---|---|---|"]
    each = [constants(found, case) for case in CASES]
    for name, form in (
        ("gradients, MB", lambda k: f"{k['bytes'] / 1e6:.1f}"),
        ("examples in a batch", lambda k: f"{k['examples']}"),
        ("$c_0$, ms a step", lambda k: f"{1e3 * k['c_0']:.1f}"),
        ("$c_1$, ms an example", lambda k: f"{1e3 * k['c_1']:.1f}"),
        ("$u$, ms an update", lambda k: f"{1e3 * k['update']:.1f}"),
        ("$s$, slowdown with two busy cores", lambda k: f"{k['slower']:.2f}"),
    ):
        lines.append(f"| {name} | " + " | ".join(map(form, each)) + " |")
    here = f"Between two ranks of this machine $L$ = {1e6 * latency:.1f} µs and $W$ = {bandwidth / 1e9:.1f} GB/s."
    return [*lines, "", here]


def measured_table(found, each, here):
    lines = ["| | measured, ms | speed-up | cost model, ms | error of the cost model |", "|---|---|---|---|---|"]
    for case in CASES:
        k, data = each[case], found["cases"][case]
        alone = data["threads"]["1"]["step"]
        rows = [(f"{n} thread" + "s" * (n > 1), data["threads"][str(n)]["step"], predict_threads(k, n)) for n in (1, 2)]
        rows += [
            (f"{n} rank" + "s" * (n > 1), data["ranks"][str(n)]["step"], predict(k, n, *here, found["cores"]))
            for n in (1, 2, 4)
        ]
        for name, seconds, model in rows:
            error = f"{round(100 * (model / seconds - 1)) or 0:+} %"
            lines.append(
                f"| {case}, {name} | {1e3 * seconds:.1f} | {alone / seconds:.2f} | {1e3 * model:.1f} | {error} |"
            )
    return lines


def strong(k, ranks, network):
    """Strong scaling: speed-up over one rank for a fixed batch of 1,024 examples (at least one for every rank)."""
    return predict(k, 1, *network, 1, 1024) / predict(k, ranks, *network, 10**9, 1024)


def weak(k, ranks, network):
    """Weak scaling: the step of one rank beside an idle core, as a part of the step when every rank has its batch."""
    return predict(k, 1, *network, 1) / predict(k, ranks, *network, 10**9, k["examples"] * ranks)


def predicted_table(each):
    ends = {name: name.split(" ", 2)[2] for name in NETWORKS}
    pairs = [(case, name) for case in CASES for name in NETWORKS]
    lines = [f"| ranks | {' | '.join(f'{case}, {ends[name]}' for case, name in pairs)} |"]
    lines.append("|---" * (1 + len(pairs)) + "|")
    for ranks in RANKS[3:]:
        cells = [
            f"{strong(each[case], ranks, NETWORKS[name]):.0f} ({100 * weak(each[case], ranks, NETWORKS[name]):.0f} %)"
            for case, name in pairs
        ]
        lines.append(f"| {ranks} | {' | '.join(cells)} |")
    at = [f"{crossing(each[case], NETWORKS[name]):,.0f} for {case} on {ends[name]}" for case, name in pairs]
    return [*lines, "", f"$P^\\ast$ (defined below) is {', '.join(at[:-1])} and {at[-1]}."]


def crossing(k, network, examples=1024):
    """The number of ranks at which the shared work takes as long as the work that is not shared."""
    return k["c_1"] * examples / (k["c_0"] + k["update"] + 2 * k["bytes"] / network[1])


def overlap_table(found):
    lines = ["| ranks | Allreduce after the computation, ms | during the computation, ms |", "|---|---|---|"]
    for ranks, results in found["messages"].items():
        seconds = results["overlap"]
        lines.append(f"| {ranks} | {1e3 * seconds['after']:.1f} | {1e3 * seconds['beneath']:.1f} |")
    return lines


def draw(each):
    """Two plots over the ranks: strong scaling of both cases on both networks, and the parts of a step on Ethernet."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"], rcParams["svg.fonttype"] = "scaling", "none"
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(RANKS, RANKS, color="0.7", linewidth=1, label="ideal")
    for case, color in zip(CASES, COLOURS[:2], strict=True):
        for network, style in zip(NETWORKS, ("--", "-"), strict=True):
            speeds = [strong(each[case], n, NETWORKS[network]) for n in RANKS]
            left.plot(RANKS, speeds, style, color=color, label=f"{case}, {network}")
    left.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speed-up, same batch", title="1,024 examples a step")
    k, network = each["wide"], NETWORKS["10 Gbit/s Ethernet"]
    compute = [1e3 * k["c_1"] * 1024 / n for n in RANKS]
    parts = {
        "shared: $c_1 B / P$": compute, "not shared: $c_0 + u$": [1e3 * (k["c_0"] + k["update"])] * len(RANKS),
        "Allreduce": [1e3 * allreduce(n, k["bytes"], *network) for n in RANKS],
    }
    for (name, seconds), style in zip(parts.items(), ("-", "--", "-."), strict=True):
        right.plot(RANKS[1:], seconds[1:], style, color="black", label=name)
    right.set(xscale="log", yscale="log", xlabel="ranks", ylabel="ms a step", title="parts of a step: wide, 10 Gbit/s")
    for axes in (left, right):
        axes.grid(color="0.92")
        axes.legend(frameon=False, fontsize=8)
        axes.set_xticks(RANKS[::2], [str(n) for n in RANKS[::2]])
        axes.minorticks_off()
    figure.savefig(PICTURE, metadata={"Date": None})


def main():
    """Measure and print; with --write, put the tables between their markers in the page, and draw the picture."""
    text, predict_only = PAGE.read_text("utf-8"), "--predict" in sys.argv
    if predict_only:
        blocks = {"predicted": predicted_table(shown_constants(read_block(text, "constants"))[0])}
    else:
        rounds = [json.loads(json.dumps(measure())) for _ in range(ROUNDS)]  # all names become texts
        blocks = tables(functools.reduce(shortest, rounds))
    for name, lines in blocks.items():
        print("\n".join(lines), end="\n\n")
        text = with_block(text, name, "\n".join(lines))
    if predict_only or "--write" in sys.argv:
        PAGE.write_text(text, "utf-8")
        draw(shown_constants(read_block(text, "constants"))[0])


if __name__ == "__main__":
    if sys.argv[1:2] != ["worker"]:
        main()
    else:
        keep_freed_memory()
        what = sys.argv[2:]
        result = messages() if what == ["messages"] else steps(
            what[0], int(what[1]), int(what[2]) if len(what) > 2 else None, exchange=len(what) < 4)
        if started_ranks().rank == 0:
            print(json.dumps(result))
