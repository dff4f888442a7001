"""Contenders in separate processes take turns at the same work."""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import InputError

ROOT = Path(__file__).parents[2]  # the root of the repository
# a contender that runs with another Python, and the environment variable that names this Python
FREE_THREADED, ITS_PYTHON = "numpy_attention, free-threaded", "NUMPY_ATTENTION_FREE_THREADED"
# name -> module, variant
CONTENDERS = {
    "PyTorch eager": ("tests.benchmarks.peers.in_torch", "eager"),
    "numpy_attention": ("tests.benchmarks.work", "ours"),
    "numpy_attention, ranks": ("tests.benchmarks.ranks", "ours"),
    FREE_THREADED: ("tests.benchmarks.work", "free-threaded"),
    "products alone": ("tests.benchmarks.work", "products"),
    "plain NumPy": ("tests.benchmarks.work", "plain"),
    "torch.compile": ("tests.benchmarks.peers.in_torch", "compile"),
    "torch softmax(QK)V": ("tests.benchmarks.peers.in_torch", "written_out"),
    "JAX jit": ("tests.benchmarks.peers.in_jax", "jit"),
    "autograd": ("tests.benchmarks.peers.in_autograd", "eager"),
    "transformers": ("tests.benchmarks.peers.in_transformers", "eager"),
    "reading alone": ("tests.benchmarks.work", "reading"),
}

SECONDS_TO_EXIT = 10.0  # for a process, until it is killed
LONG, VERY_LONG = 1.0, 5.0  # seconds: LONG calls need no warm-up; VERY_LONG calls get three rounds


class Result(NamedTuple):
    """Seconds per call, median and quartiles over the rounds; the ratio to the first contender; bytes of memory."""

    seconds: float
    low: float
    high: float
    ratio: float
    rounds: int
    peak: int | None  # of the whole process
    beyond_start: int | None  # peak minus the memory before the work was prepared, which the libraries use
    extra: int | None  # peak minus the memory after the inputs were made


class Process:
    """A contender's process; commands and answers are lines of JSON."""

    def __init__(self, name: str, threads: int) -> None:
        module, variant = CONTENDERS[name]
        self.name = name
        limits = {key: str(threads) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        limits["OPENBLAS_THREAD_TIMEOUT"] = "20"  # as `python -m numpy_attention` sets it
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        several = module == "tests.benchmarks.ranks" and shutil.which("mpiexec")
        launcher = ["mpiexec", "-n", str(threads)] if several else []
        python = os.environ[ITS_PYTHON] if name == FREE_THREADED else sys.executable
        self.process = subprocess.Popen(
            [*launcher, python, "-m", "tests.benchmarks.worker", module, variant, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | limits | {"PYTHONPATH": path},
        )
        self.first = self._answer()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for the answer."""
        assert self.process.stdin is not None
        try:
            print(json.dumps(command), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return {"unavailable": "its process ended"}
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        last = [text for text in self.process.stderr.read().splitlines() if text.strip()]
        return {"unavailable": last[-1] if last else f"its process ended with code {self.process.wait()}"}

    def close(self) -> None:
        """Close the input, so the process can delete its files and exit; kill it if it does not exit."""
        try:
            self.process.communicate(timeout=SECONDS_TO_EXIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


@contextmanager
def processes(names: Sequence[str], threads: int) -> Iterator[dict[str, Process]]:
    """A process for every contender; all are closed at the end of the block."""
    with ExitStack() as stack:
        started = {}
        for name in names:
            started[name] = Process(name, threads)
            stack.callback(started[name].close)
        yield started


@contextmanager
def load(count: int) -> Iterator[None]:
    """Inside this context `count` other processes keep a core busy each; they also end if this process is killed."""
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10**6))"
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def race(
    case: dict[str, Any], contenders: Mapping[str, Process], rounds: int = 7, turn: float = 0.3
) -> tuple[dict[str, Result], dict[str, str]]:
    """Results of the available contenders, and for each of the others the reason why it is missing.

    Ratios compare with the first available contender. `turn`: approximate seconds of each contender in a round. The
    work of a case of the kind "busy" is in `case["work"]`; it is measured while `case["others"]` processes are busy.
    """
    facts: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name, process in contenders.items():
        answer = process.first if "unavailable" in process.first else process.ask(case=case.get("work", case))
        if "unavailable" in answer:
            missing[name] = answer["unavailable"]
        else:
            facts[name] = answer
    if not facts:
        return {}, missing
    _assert_same_work(case, {name: fact["results"] for name, fact in facts.items() if fact["results"]})
    calls = {name: max(1, round(turn / max(fact["once"], 1e-7))) for name, fact in facts.items()}
    if max(fact["once"] for fact in facts.values()) > VERY_LONG:
        rounds = min(rounds, 3)
    times: dict[str, list[float]] = {name: [] for name in facts}
    with load(case.get("others", 0)):
        for i in range(rounds):
            for name in list(facts) if i % 2 else reversed(list(facts)):
                time.sleep(0.05)  # until the threads of the previous contender sleep
                answer = contenders[name].ask(calls=calls[name], warm=facts[name]["once"] < LONG)
                times[name].append(answer["seconds"])
    first = next(iter(times.values()))
    return {name: _result(facts[name], seconds, first) for name, seconds in times.items()}, missing


def imports(rounds: int, quick: bool) -> dict[str, Result]:
    """Seconds from the start of a new interpreter to the end of an import; "beyond numpy" is ours minus NumPy's.

    The first round is not counted: it compiles the modules, as an installation does, which takes the longest.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    modules = {"numpy": "numpy", "numpy_attention": "numpy, numpy_attention"} | ({} if quick else {"torch": "torch"})
    times: dict[str, list[float]] = {name: [] for name in modules}
    for i in range(rounds + 1):
        for name, imported in modules.items():
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", f"import {imported}"], capture_output=True, check=False, env=environment
            )
            if done.returncode == 0 and i:  # the first round also fills the disk cache
                times[name].append(time.perf_counter() - start)
    ours, alone = times["numpy_attention"], times["numpy"]
    times["beyond numpy"] = [with_us - without for with_us, without in zip(ours, alone, strict=True)]
    no_memory = {"peak": None}
    return {name: _result(no_memory, seconds, alone) for name, seconds in times.items() if seconds}


def _result(fact: dict[str, Any], seconds: list[float], first: list[float]) -> Result:
    peak = fact["peak"]
    low, high = np.quantile(seconds, (0.25, 0.75)).tolist()
    ratio = statistics.median(mine / theirs for mine, theirs in zip(seconds, first, strict=True))
    beyond, extra = (None if peak is None else peak - fact[since] for since in ("at_start", "built"))
    return Result(statistics.median(seconds), low, high, ratio, len(seconds), peak, beyond, extra)


def _assert_same_work(case: dict[str, Any], results: dict[str, list[float]]) -> None:
    """Raise an error if results differ by more than rounding: times of different work cannot be compared."""
    names = list(results)
    for name in names[1:]:
        pairs = list(zip(results[names[0]], results[name], strict=True))
        if not all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in pairs):
            raise InputError(
                f"{case}: {names[0]} and {name} compute different results: {results[names[0]]} and {results[name]}"
            )
