"""A contender's process: it reads commands from standard input, runs the work, and answers in JSON.

    python -m tests.benchmarks.worker MODULE VARIANT THREADS
"""

import gc
import importlib
import json
import sys
import time
from typing import Any, TextIO

from numpy_attention.backend import BackendError
from tests.benchmarks.work import Unavailable, Work


def resident(what: str) -> int | None:
    """Bytes of this process in memory: now ("VmRSS") or at most ("VmHWM"); None if the system has no such file."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))
    except (OSError, StopIteration):
        return None


def reset_peak() -> None:
    """Set the peak of memory to the present use."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass  # the peak then includes the preparation


def prepare(module: Any, variant: str, threads: int, case: dict[str, Any]) -> tuple[Work, dict[str, Any]]:
    """The work of a case, and its results, its time and its memory, measured before the race."""
    at_start = resident("VmRSS")
    work = module.make(case, variant, threads)
    gc.collect()
    built = resident("VmRSS")
    reset_peak()
    results = work.results()  # the first call may compile, or load kernels
    work.call()
    start = time.perf_counter()
    work.call()
    once = time.perf_counter() - start
    memory = {"at_start": at_start, "built": built, "peak": resident("VmHWM")}
    if work.peak is not None:
        memory = {"at_start": 0, "built": 0, "peak": work.peak()}
    return work, {"results": results, "once": once, **memory}


def main(arguments: list[str], commands: TextIO, answers: TextIO) -> None:
    """Answer every line of `commands` with one line."""
    module_name, variant, threads = arguments[0], arguments[1], int(arguments[2])
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        in_tree = (error.name or "").startswith("tests")
        missing = "this contender is only in the repository: clone it, and run the benchmark there"
        reason = missing if in_tree else str(error)
        print(json.dumps({"unavailable": reason}), file=answers, flush=True)
        return
    if getattr(module, "ranks", None) and module.ranks.rank > 0:
        module.follow()
        return
    print(json.dumps({"ready": True}), file=answers, flush=True)
    work: Work | None = None
    for line in commands:
        command = json.loads(line)
        answer: dict[str, Any]
        try:
            if "case" in command:
                work = None  # frees the memory of the previous case
                work, answer = prepare(module, variant, threads, command["case"])
            else:
                assert work is not None
                if command["warm"]:
                    work.call()  # not counted: other processes have used the caches
                start = time.perf_counter()
                for _ in range(command["calls"]):
                    work.call()
                answer = {"seconds": (time.perf_counter() - start) / command["calls"]}
        except (Unavailable, BackendError) as error:
            answer = {"unavailable": str(error)}
        except Exception as error:  # an error of one contender must not stop the others
            answer = {"unavailable": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    sys.stdout, real = sys.stderr, sys.stdout  # keeps the output of libraries out of the answers
    main(sys.argv[1:], sys.stdin, real)
