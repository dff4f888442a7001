"""How the cost of a training step grows, and how far each kind of work is from the limit of this machine.

    python -m tests.benchmarks.bench_growth --plot roofline.svg      # two minutes

Growth: each size of the model is doubled separately; the exponent is log2 of the growth of the step's time. The table
compares it with the exponent of the number of operations in the matrix products. Roofline: work with I operations for
each moved byte is at most as fast as the smaller of two rates: the rate of matrix products, and I times the bandwidth
of the memory.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy_attention as na
from numpy_attention.app.plots import style
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.parallel import Workers
from tests.benchmarks import work
from tests.benchmarks.report import machine
from tests.benchmarks.timing import table

BASE = {"V": 512, "T": 128, "B": 8, "d_model": 256, "layers": 4, "H": 4}
DOUBLED = {"T": "T", "B": "B", "d_model": "d_model, heads of 64", "layers": "layers", "V": "V"}


def seconds(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Medians of calls that take turns; an additional call before each measured call is not counted."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            call()
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def growth(rounds: int, threads: int) -> None:
    work.SIZES["base"] = tuple(BASE.values())
    for name in DOUBLED:
        more = {**BASE, name: 2 * BASE[name]}
        more["H"] = more["d_model"] // 64
        work.SIZES[name] = tuple(more.values())
    names = ["base", *DOUBLED]
    times = seconds([work.make({"kind": "step", "size": n}, "ours", threads).call for n in names], rounds)
    counts = [work.floating_point_operations(n) for n in names]
    print("base: " + ", ".join(f"{name} = {value}" for name, value in BASE.items()) + f": {1e3 * times[0]:.0f} ms\n")
    rows = [
        [DOUBLED[name], f"{math.log2(counts[i] / counts[0]):.2f}", f"{math.log2(times[i] / times[0]):.2f}"]
        for i, name in enumerate(DOUBLED, start=1)
    ]
    table(["doubled size", "exponent of the products", "exponent of the step's time"], rows)


def roofline(rounds: int, threads: int, picture: Path | None) -> None:
    size = 4 * 2**20
    x, y, z = (np.ones(size, np.float32) for _ in range(3))
    a, b, c = (np.ones((threads, 1024, 1024), np.float32) for _ in range(3))
    with Workers(threads) as workers:

        def on_all(one: Callable[[int], Any]) -> Callable[[], Any]:
            return lambda: list(workers.map(one, range(threads)))

        def cut(array: np.ndarray, i: int) -> np.ndarray:
            return np.array_split(array, threads)[i]

        rows = np.random.default_rng(0).standard_normal((4096, 768), dtype=np.float32)
        gamma = np.ones(768, np.float32)
        small = np.random.default_rng(0).standard_normal((2 * 64, 128, 32), dtype=np.float32)
        outs = np.empty((2 * 64, 128, 128), np.float32)
        parameters = [{"p": np.ones(2**21, np.float32)} for _ in range(threads)]
        optimizers = [na.AdamW(p, 1e-3) for p in parameters]
        N = rows.size
        # name -> what one thread does, floating-point operations of all, bytes that must move
        cases: dict[str, tuple[Callable[[int], Any], float, float]] = {
            "add": (lambda i: np.add(cut(x, i), cut(y, i), out=cut(z, i)), size, 12 * size),
            "product 1024": (lambda i: np.matmul(a[i], b[i], out=c[i]), threads * 2 * 1024**3, threads * 12 * 1024**2),
            "q k^T, T 128, d_k 32": (
                lambda i: np.matmul(cut(small, i), cut(small, i).swapaxes(1, 2), out=cut(outs, i)),
                2 * 128 * 128 * 128 * 32, 4 * (2 * small.size + outs.size),
            ),
            "softmax": (lambda i: na.softmax(cut(rows, i)), 5 * N, 8 * N),
            "layer norm": (lambda i: na.layer_norm(cut(rows, i), gamma, gamma), 8 * N, 12 * N),
            "GELU": (lambda i: na.gelu(cut(rows, i)), 20 * N, 12 * N),
            "AdamW": (lambda i: optimizers[i].step(parameters[i]), threads * 14 * 2**21, threads * 28 * 2**21),
        }
        times = seconds([on_all(one) for one, _, _ in cases.values()], rounds)
    rates = {name: flop / t / 1e9 for (name, (_, flop, _)), t in zip(cases.items(), times, strict=True)}
    bandwidth = 12 * size / times[0] / 1e9
    roof = rates["product 1024"]
    found = []
    for name, (_, flop, moved) in cases.items():
        limit = min(roof, flop / moved * bandwidth)
        found.append((name, flop / moved, rates[name], limit))
    corner = f"corner at {roof / bandwidth:.1f} FLOP per byte"
    print(f"\nproducts: {roof:.0f} GFLOP/s; memory: {bandwidth:.1f} GB/s; {corner}\n")
    head = ["work, forward", "FLOP per byte", "GFLOP/s", "limit, GFLOP/s", "share of the limit"]
    table(head, [[n, f"{i:.2f}", f"{r:.1f}", f"{limit:.1f}", f"{r / limit:.0%}"] for n, i, r, limit in found])
    if picture:
        draw(picture, found, roof, bandwidth)


def draw(path: Path, found: list[tuple[str, float, float, float]], roof: float, bandwidth: float) -> None:
    figure = style.new_figure(7.0, 4.4)
    axes = figure.subplots()
    intensity = np.geomspace(0.05, 300, 100)
    axes.loglog(intensity, np.minimum(roof, intensity * bandwidth), color=style.INK)
    for i, (name, x, y, _) in enumerate(found):
        axes.loglog([x], [y], color=style.COLOURS[i % 5], marker=style.MARKERS[i % 5], linestyle="none")
        places = {"softmax": ((-7, -4), "right"), "product 1024": ((0, -16), "center"), "AdamW": ((5, 9), "left"),
                  "layer norm": ((5, -13), "left")}  # labels that would overlap or leave the picture
        place, align = places.get(name, ((7, -4), "left"))
        axes.annotate(name, (x, y), place, textcoords="offset points", ha=align, fontsize=9, family=style.FONT)
    axes.set_xlim(0.05, 300)
    axes.set_ylim(1, 2 * roof)
    axes.minorticks_off()
    style.dress(axes, "What the machine allows and what work reaches", "FLOP per byte", "GFLOP/s", grid=True)
    style.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="how the cost of a step grows, and a roofline of this machine")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="draw the roofline into this file (.svg, .png)")
    args = parser.parse_args()
    keep_freed_memory()
    print(machine(args.threads) + "\n")
    growth(args.rounds, args.threads)
    roofline(args.rounds, args.threads, args.plot)


if __name__ == "__main__":
    main()
