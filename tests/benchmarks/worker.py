"""A contender's process: it prepares what it is told to on standard input, takes its turns, and answers in JSON.

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
    """Bytes of this process that are in memory: now ("VmRSS") or at most ("VmHWM"); None where the system won't say."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))
    except (OSError, StopIteration):
        return None


def forget_peak() -> None:
    """Let the peak begin anew from what is in memory now."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass  # the peak then counts the preparation too


def prepare(module: Any, variant: str, threads: int, case: dict[str, Any]) -> tuple[Work, dict[str, Any]]:
    """The work of a case, and what is to be known of it before the race: its results, its time, its memory."""
    at_start = resident("VmRSS")
    work = module.make(case, variant, threads)
    gc.collect()
    built = resident("VmRSS")
    forget_peak()
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
    """Answer one line for every line of `commands`."""
    module_name, variant, threads = arguments[0], arguments[1], int(arguments[2])
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        in_tree = (error.name or "").startswith("tests")
        reason = "its side of the race comes with the source tree: git clone, and run there" if in_tree else str(error)
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
                work = None  # the one before makes room
                work, answer = prepare(module, variant, threads, command["case"])
            else:
                assert work is not None
                if command["warm"]:
                    work.call()  # not counted: the caches were someone else's meanwhile
                start = time.perf_counter()
                for _ in range(command["calls"]):
                    work.call()
                answer = {"seconds": (time.perf_counter() - start) / command["calls"]}
        except (Unavailable, BackendError) as error:
            answer = {"unavailable": str(error)}
        except Exception as error:  # one contender's trouble must not end the others' race
            answer = {"unavailable": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    sys.stdout, real = sys.stderr, sys.stdout  # whatever a library prints must not be taken for an answer
    main(sys.argv[1:], sys.stdin, real)
