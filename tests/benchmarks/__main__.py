"""Speed on this machine, this book beside PyTorch: `python -m tests.benchmarks` in a copy of the repository.

    python -m tests.benchmarks                             training steps and attention alone: five minutes
    python -m tests.benchmarks long                        a training step on one text of 4,096 and of 16,384 tokens
    python -m tests.benchmarks pretrained                  a real model beside transformers (fetch smollm2 first)
    python -m tests.benchmarks busy                        steps and real model while another process is busy
    python -m tests.benchmarks step --before DIR           also the book in another copy of the repository, in turns
    python -m tests.benchmarks step --before DIR --without-torch --sizes micro,small,gpt2
    python -m tests.benchmarks step --backend cupy         on a GPU
"""

import argparse
import datetime as dt
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.generated import with_block

ROOT = Path(__file__).parents[2]  # of the repository
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
PICTURE = ROOT / "docs" / "_static" / "attention-cost.svg"
THEIRS, OURS, BEFORE, PLAIN = "PyTorch", "numpy_attention", "before", "plain NumPy"
TITLES = {
    "step": "A training step of a GPT: forward, backward, AdamW",
    "attention": "Causal attention alone, forward and backward: one sequence, 8 heads of 64",
    "long": "A training step of a GPT on one long text: 6 layers of 384",
    "pretrained": "SmolLM2-135M-Instruct in float32, beside transformers",
    "busy": "While one other process is busy",
}
SIZES = ("nano", "micro", "small", "gpt2")
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
LONGEST_PLAIN = 4096  # beyond, arrays of T x T take gigabytes
REAL = {"prompt": 512, "next token": 128, "LoRA step": 512}  # tokens of the work with a real model
BUSY = REAL | {"next token": 32}  # beside a busy process, transformers needs a second for each token
# imports the book from the first argument, and the benchmark from this copy of the repository
PROGRAM = """import sys
sys.path.insert(0, sys.argv[1])
import numpy_attention
sys.path[0] = sys.argv[2]
from tests.benchmarks import worker
worker.main(sys.argv[3:])
"""
VERY_LONG = 5.0  # seconds; calls of this length get three rounds

Case = dict[str, Any]


class Result(NamedTuple):
    """Seconds of a call in each round, and the bytes of memory at the peak: of the process, and without the inputs."""

    seconds: list[float]
    peak: int | None
    extra: int | None


class Contender:
    """The process of a contender; commands and answers are lines of JSON."""

    def __init__(self, name: str, root: Path, threads: int) -> None:
        module = "tests.benchmarks.theirs" if name == THEIRS else "tests.benchmarks.ours"
        limits = {key: str(threads) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        command = [sys.executable, "-c", PROGRAM, str(root), str(ROOT), module, "plain" if name == PLAIN else "tiled"]
        self.process = subprocess.Popen(
            [*command, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | limits,
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for the answer."""
        try:
            print(json.dumps(command), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return {"error": "its process ended"}
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"error": "its process ended"}

    def close(self) -> None:
        self.process.communicate()


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Inside this context `count` other processes keep a core busy each; they end if this process ends."""
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10**6))"
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def prepared(case: Case, contenders: Mapping[str, Contender]) -> dict[str, dict[str, Any]]:
    """The answers of the contenders that can do the work; all of them must compute the same numbers."""
    answers = {name: contender.ask(case=case) for name, contender in contenders.items()}
    for name in [name for name, answer in answers.items() if "error" in answer]:
        print(f"{name_of(case)}: {name}: {answers.pop(name)['error']}", file=sys.stderr)
    first = next(iter(answers), "")
    for name, answer in answers.items():
        pairs = list(zip(answers[first]["results"], answer["results"], strict=True))
        if not all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in pairs):
            raise SystemExit(f"{name_of(case)}: {first} and {name} compute different results: {pairs}")
    return answers


def race(
    contenders: Mapping[str, Contender], answers: Mapping[str, Any], rounds: int, turn: float = 0.3
) -> dict[str, Result]:
    """The results of prepared contenders, which take turns; a turn lasts about `turn` seconds."""
    calls = {name: max(1, round(turn / max(answer["once"], 1e-7))) for name, answer in answers.items()}
    if max(answer["once"] for answer in answers.values()) > VERY_LONG:
        rounds = min(rounds, 3)
    seconds: dict[str, list[float]] = {name: [] for name in answers}
    for i in range(rounds):
        for name in list(answers)[:: 1 if i % 2 else -1]:
            if answers[name]["once"] < 1:
                contenders[name].ask(calls=1)  # not counted: the other contenders have used the caches
            seconds[name].append(contenders[name].ask(calls=calls[name])["seconds"])
    return {name: Result(many, *memory_of(answers[name])) for name, many in seconds.items()}


def memory_of(answer: dict[str, Any]) -> tuple[int | None, int | None]:
    """Bytes at the peak: of the process, and without the weights and inputs."""
    peak, built = answer["peak"], answer["built"]
    return peak, None if peak is None else peak - built


def ratio(one: Result, other: Result) -> float:
    """The median over the rounds of the seconds of one divided by the seconds of the other."""
    return statistics.median(a / b for a, b in zip(one.seconds, other.seconds, strict=True))


def measure(kind: str, arguments: argparse.Namespace) -> Iterator[tuple[Case, dict[str, Result], dict[str, Result]]]:
    """(case, results, results while another process is busy) for each case of a kind."""
    for cases in groups(kind, arguments):
        names = [THEIRS] * (not arguments.without_torch) + [OURS] + [BEFORE] * (arguments.before is not None)
        if kind == "attention" and cases[0]["T"] <= LONGEST_PLAIN and not arguments.before:
            names.append(PLAIN)
        with ExitStack() as stack:
            contenders = {}
            for name in names:
                contenders[name] = Contender(name, arguments.before if name == BEFORE else ROOT, arguments.threads)
                stack.callback(contenders[name].close)
            for case in cases:
                if answers := prepared(case, contenders):
                    quiet, loaded = race(contenders, answers, arguments.rounds), {}
                    if kind == "busy":
                        with busy_processes(1):
                            loaded = race(contenders, answers, min(arguments.rounds, 5))
                    yield case, quiet, loaded


def groups(kind: str, arguments: argparse.Namespace) -> list[list[Case]]:
    """The cases of a kind; each group gets new processes, whose memory is the memory of this group."""
    steps = [[{"kind": "step", "name": size, "backend": arguments.backend}] for size in arguments.sizes.split(",")]
    real = [
        {"kind": "pretrained", "name": name, "tokens": tokens}
        for name, tokens in (BUSY if kind == "busy" else REAL).items()
    ]
    return {
        "step": steps, "pretrained": [real], "busy": [*steps, real],
        "attention": [[{"kind": "attention", "T": T}] for T in LENGTHS if T <= arguments.longest],
        "long": [[{"kind": "step", "name": f"T = {T}"}] for T in (4096, 16384) if T <= arguments.longest],
    }[kind]


def name_of(case: Case) -> str:
    """The name of a case in the tables."""
    if case["kind"] == "attention":
        return f"T = {case['T']:,}"
    return f"{case['name']}, {case['tokens']} tokens" if "tokens" in case else case["name"]


def rows(kind: str, case: Case, quiet: dict[str, Result], loaded: dict[str, Result]) -> Iterator[list[str]]:
    """A row of the table for each contender."""
    first = next(iter(quiet.values()))
    for name, result in quiet.items():
        low, high = (1e3 * quantile for quantile in np.quantile(result.seconds, (0.25, 0.75)))
        cells = [name_of(case), name, f"{1e3 * statistics.median(result.seconds):.3g} ({low:.3g} to {high:.3g})"]
        cells.append(f"**{ratio(result, first):.2f}**" if name == OURS else f"{ratio(result, first):.2f}")
        if kind == "busy":
            times = statistics.median(loaded[name].seconds) / statistics.median(result.seconds)
            yield [*cells, f"{times:.2f}", f"{ratio(loaded[name], next(iter(loaded.values()))):.2f}"]
        else:
            yield [*cells, *("" if size is None else f"{size / 1e6:.0f}" for size in (result.peak, result.extra))]


def head(kind: str) -> list[str]:
    """The titles of the columns of `rows`."""
    more = ["busy, times", "ratio, busy"] if kind == "busy" else ["peak MB", "MB beyond weights and inputs"]
    return ["", "", "ms (quartiles)", "ratio", *more]


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def machine(threads: int) -> str:
    """One line with the date, the machine and the libraries of a measurement."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="ascii") as lines:
            cpu = next((text.split(":")[1].strip() for text in lines if text.startswith("model name")), cpu)
    except OSError:
        pass
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"Measured on {dt.date.today():%d %B %Y}: {cpu}, {os.cpu_count()} cores, "
        f"{threads} thread{'s' * (threads > 1)}; "
        f"Python {platform.python_version()}, NumPy {np.__version__} with {blas['name']} {blas['version']}; float32"
    )


def plot(results: list[tuple[int, dict[str, Result]]], path: Path) -> None:
    """Time and memory of attention against T, with logarithmic axes."""
    from numpy_attention.app import plots

    figure = plots.new_figure(10.0, 4.4)
    times, memory = figure.subplots(1, 2)
    for i, name in enumerate((THEIRS, OURS, PLAIN)):
        known = [(T, found[name]) for T, found in results if name in found]
        look = {"color": plots.COLOURS[i], "linestyle": plots.DASHES[i], "marker": plots.MARKERS[i], "label": name}
        times.loglog([T for T, _ in known], [statistics.median(r.seconds) for _, r in known], **look)
        memory.loglog([T for T, _ in known], [(r.extra or 0) / 1e6 for _, r in known], **look)
    for axes, title, unit in ((times, "time", "seconds"), (memory, "memory beyond the inputs", "MB")):
        plots.dress(axes, title, "T, queries and keys", unit, grid=True)
        axes.set_xticks([T for T, _ in results], [str(T) for T, _ in results], rotation=45)
        axes.minorticks_off()
    times.legend(frameon=False, fontsize=9)
    plots.save(figure, path)


def write(path: Path, name: str, content: str) -> None:
    """Replace a block of a page."""
    path.write_text(with_block(path.read_text("utf-8"), name, content), "utf-8")


def run(arguments: argparse.Namespace) -> None:
    """Measure; print a table for each kind of work, line by line, and write it into the page."""
    about = machine(arguments.threads)
    print(about)
    for kind in arguments.kinds or ["step", "attention"]:
        print(f"\n{TITLES[kind]}\n")
        table, results = [line(head(kind)), line(["---"] * len(head(kind)))], []
        print(*table, sep="\n", flush=True)
        for case, quiet, loaded in measure(kind, arguments):
            results.append((case, quiet))
            table += map(line, rows(kind, case, quiet, loaded))
            print(*table[-len(quiet) :], sep="\n", flush=True)
        if arguments.write:
            write(PAGE, kind, "\n".join([f"{about}.", "", *table]))
            if kind == "attention":
                plot([(case["T"], found) for case, found in results], PICTURE)
            if kind == "step":
                ratios = [ratio(found[OURS], found[THEIRS]) for _, found in results]
                write(README, "speed", f"A training step takes {min(ratios):.2f} to {max(ratios):.2f} times as long as "
                      "PyTorch eager's: [how fast, and why](docs/performance.md).")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(TITLES)} (default: the first two)")
    parser.add_argument("--sizes", default=",".join(SIZES), help="sizes of the GPT (default: %(default)s)")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="largest T (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default: %(default)s)")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another copy of the repository, as a contender")
    parser.add_argument("--without-torch", action="store_true", help="without PyTorch")
    parser.add_argument("--backend", default="numpy", help="cupy: the training step on a GPU")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance.md")
    arguments = parser.parse_args()
    for given, known in ((arguments.kinds, TITLES), (arguments.sizes.split(","), SIZES)):
        if wrong := set(given) - set(known):
            parser.error(f"there is no {', '.join(wrong)}; there are {', '.join(known)}")
    run(arguments)


if __name__ == "__main__":
    main()
