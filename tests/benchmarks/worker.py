"""The process of a contender: it reads commands from standard input and answers in JSON, one line for each."""

import gc
import importlib
import json
import sys
import time
from typing import Any


def memory(what: str) -> int | None:
    """Bytes of this process in memory: now ("VmRSS") or at most ("VmHWM"); None if the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))
    except (OSError, StopIteration):
        return None


def forget_peak() -> None:
    """Set the peak of memory to the present use."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass  # the peak then includes the preparation


def main(arguments: list[str]) -> None:
    """MODULE VARIANT THREADS: make the work of a case, time calls of the current work."""
    sys.stdout, answers = sys.stderr, sys.stdout  # keeps the output of libraries out of the answers
    work: Any = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "case" in command:
                work = None  # frees the memory of the previous case
                module = importlib.import_module(arguments[0])
                work = module.make(command["case"], arguments[1], int(arguments[2]))
                gc.collect()
                built = memory("VmRSS")
                forget_peak()
                results = work.results()  # the first call may load kernels
                start = time.perf_counter()
                work.call()
                answer = {"results": results, "once": time.perf_counter() - start, "built": built,
                          "peak": memory("VmHWM")}  # fmt: skip
            else:
                start = time.perf_counter()
                for _ in range(command["calls"]):
                    work.call()
                answer = {"seconds": (time.perf_counter() - start) / command["calls"]}
        except Exception as error:  # an error of one contender does not stop the others
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)
