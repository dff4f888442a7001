"""Fair timing: contenders take turns in one process, with equal thread counts, and only ratios of one run are told.

A machine is never quiet for long. Each round gives every contender one turn, in changing order; a turn warms up with
one call that is not counted. The ratio of two contenders is the median over rounds of the ratio within a round, so a
slow minute slows both sides of it.
"""

import contextlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np


class Contender(NamedTuple):
    """Something to time, and the threads it runs with."""

    run: Callable[[], Any]
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


class Result(NamedTuple):
    """Seconds a call: the median over rounds, the quartiles, and the ratio to the first contender."""

    seconds: float
    low: float
    high: float
    ratio: float


def compare(contenders: dict[str, Contender], rounds: int = 7, turn: float = 0.1) -> dict[str, Result]:
    """Time all contenders; the first one is what the others are compared with. `turn`: seconds each gets a round."""
    calls = {name: max(1, round(turn / max(one_turn(c, 1), 1e-7))) for name, c in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for i in range(rounds):
        for name in names if i % 2 else reversed(names):
            times[name].append(one_turn(contenders[name], calls[name]))
    first = times[names[0]]
    return {
        name: Result(
            statistics.median(seconds), *np.quantile(seconds, (0.25, 0.75)).tolist(),
            statistics.median(mine / theirs for mine, theirs in zip(seconds, first, strict=True)),
        )
        for name, seconds in times.items()
    }


def one_turn(contender: Contender, calls: int) -> float:
    """Mean seconds a call, after one call that is not counted and a pause in which other threads go to sleep."""
    time.sleep(0.02)
    with contender.around():
        contender.run()
        start = time.perf_counter()
        for _ in range(calls):
            contender.run()
        return (time.perf_counter() - start) / calls


def blas_threads(count: int) -> Callable[[], AbstractContextManager[Any]]:
    """Within it NumPy's BLAS uses `count` threads. Needs threadpoolctl, which is in the extra `bench`."""
    import threadpoolctl

    controller = threadpoolctl.ThreadpoolController()
    return lambda: controller.limit(limits=count, user_api="blas")


def torch_with(threads: int) -> Any:
    """PyTorch, held to a number of threads, or a line on how to get it."""
    try:
        import torch
    except ImportError:
        raise SystemExit("this compares with PyTorch: pip install '.[bench]'") from None
    torch.set_num_threads(threads)
    return torch


def table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, line by line, as the rows come."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def milliseconds(result: Result) -> str:
    return f"{1e3 * result.seconds:.3g} ({1e3 * result.low:.3g} to {1e3 * result.high:.3g})"


def machine(threads: int, torch: Any) -> str:
    """One line on where and with what the numbers were made."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"{cpu}, {threads} threads on each side; Python {platform.python_version()}, NumPy {np.__version__} with "
        f"{blas['name']} {blas['version']}, PyTorch {torch.__version__}; float32; medians, quartiles in brackets"
    )


def assert_same_work(ours: Sequence[np.ndarray], theirs: Sequence[Any], what: str) -> None:
    """Both sides must have computed the same: a difference beyond rounding ends the benchmark."""
    for mine, other in zip(ours, theirs, strict=True):
        other = other.detach().numpy()
        error = np.abs(mine - other).max() / max(np.abs(other).max(), 1e-30)
        if not error < 1e-3:
            raise SystemExit(f"{what}: the contenders do not compute the same, off by {error:.1e}")
