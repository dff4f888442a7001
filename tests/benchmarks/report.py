"""The results of the races as Markdown tables, JSON, and a picture."""

import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.app.plots import style
from numpy_attention.files import atomic_write
from tests.benchmarks.race import Result
from tests.benchmarks.work import bytes_of_all_weights

Races = list[tuple[dict[str, Any], dict[str, Result]]]
TITLES = {
    "step": "A training step of a GPT: forward, backward, AdamW",
    "long": "A training step of a GPT on one long text: 6 layers of 384, forward, backward, AdamW",
    "op": "One op, forward and backward",
    "attention": "Attention alone, forward and backward: one sequence, 8 heads of 64",
    "generation": "Generation: 6 layers of 384, tokens one by one",
    "pretrained": "SmolLM2-135M-Instruct in float32",
    "busy": "On a busy machine: other processes compute at the same time",
    "import": "Import",
}
RATED = ("generation", "pretrained")  # kinds of work with a column of tokens per second


def machine(threads: int) -> str:
    """One line with the machine and the libraries of the measurement."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="ascii") as lines:
            cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"{cpu}, {os.cpu_count()} cores, {threads} threads on each side; Python {platform.python_version()}, "
        f"NumPy {np.__version__} with {blas['name']} {blas['version']}; float32; medians, quartiles in brackets"
    )


def name_of(case: dict[str, Any]) -> str:
    """The name of a case in the tables."""
    if case["kind"] == "busy":
        return f"{name_of(case['work'])}, {case['others']} other processes"
    if case["kind"] == "attention":
        return f"T = {case['T']}, {'causal' if case['causal'] else 'full'}"
    if case["kind"] == "generation":
        texts = "a text" if case["batch"] == 1 else f"{case['batch']} texts"
        return f"{case['tokens']} tokens after {case['prompt']:,} of {texts}, {'KV' if case['cache'] else 'no'} cache"
    if case["kind"] == "pretrained" and "tokens" in case:
        return f"{case['name']}, {case['tokens']} tokens"
    return str(case.get("size") or case.get("name"))


def rows(case: dict[str, Any], results: dict[str, Result]) -> Iterator[list[str]]:
    """A row for each contender."""
    all_weights = megabytes(bytes_of_all_weights(case["size"])) if case["kind"] == "long" else ""
    for name, r in results.items():
        time = f"{milliseconds(r.seconds)} ({milliseconds(r.low)} to {milliseconds(r.high)})"
        ratios = [f"{r.ratio:.2f}"]
        if case["kind"] == "step":
            floor = results.get("products alone")
            ratios.append(f"{r.seconds / floor.seconds:.2f}" if floor else "")
        memory = {
            "step": [megabytes(r.peak), megabytes(r.beyond_start)],
            "long": [megabytes(r.peak), all_weights],
            "attention": [megabytes(r.extra)],
            "pretrained": [megabytes(r.peak)],
        }
        tokens = case.get("tokens", 0) * case.get("batch", 1)
        rate = [f"{tokens / r.seconds:.0f}" if tokens else ""] if case["kind"] in RATED else []
        yield [name_of(case), name, time, *rate, *ratios, *memory.get(case["kind"], [])]


def head(kind: str) -> list[str]:
    """The titles of the columns of `rows`."""
    columns = ["", "", "ms"]
    columns += ["tokens/s"] if kind in RATED else []
    columns += ["ratio to the first library"]
    more = {
        "step": ["ratio to the products", "peak MB", "of these without the libraries"],
        "long": ["peak MB", "MB if all weights were stored"],
        "attention": ["MB without the inputs"],
        "pretrained": ["peak MB"],
    }
    return [*columns, *more.get(kind, [])]


def line(cells: list[str]) -> None:
    """Print a row of a Markdown table, and flush the output."""
    print("| " + " | ".join(cells) + " |")
    sys.stdout.flush()


def print_imports(results: dict[str, Result]) -> None:
    """Print the times of the imports: two lines of prose, since there are few numbers."""
    whole = {name: r for name, r in results.items() if name != "beyond numpy"}
    times = ", ".join(f"{name} {milliseconds(r.seconds)} ms" for name, r in whole.items())
    print(f"\nImport, with the interpreter's start: {times}")
    print(f"numpy_attention beyond numpy: {milliseconds(results['beyond numpy'].seconds)} ms", flush=True)


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with three digits; the machine's noise is larger than the last digit."""
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def megabytes(count: int | None) -> str:
    """Bytes as a short number of megabytes; an empty text if the memory was not measured."""
    return "" if count is None else f"{count / 1e6:.3g}" if count < 1e8 else f"{count / 1e6:.0f}"


def write_json(path: Path, about: str, races: Races, missing: dict[str, str]) -> None:
    """Write every result, for other programs."""
    found = [{"case": case, "results": {name: r._asdict() for name, r in results.items()}} for case, results in races]
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps({"machine": about, "races": found, "not measured": missing}, indent=1) + "\n")


def plot(path: Path, races: Races) -> None:
    """Plot time and memory of attention against T, with logarithmic axes (extra `plots`)."""
    figure = style.new_figure(10.0, 4.4)
    times, memory = figure.subplots(1, 2)
    causal = [(case["T"], results) for case, results in races if case["kind"] == "attention" and case["causal"]]
    names = list(dict.fromkeys(name for _, results in causal for name in results))
    for i, name in enumerate(names):
        look = {"color": style.COLOURS[i % 5], "linestyle": style.DASHES[i % 5], "marker": style.MARKERS[i % 5]}
        points = [(T, results[name]) for T, results in causal if name in results]
        times.loglog([T for T, _ in points], [r.seconds for _, r in points], label=name, **look)
        known = [(T, r.extra / 1e6) for T, r in points if r.extra]
        memory.loglog([T for T, _ in known], [megabytes for _, megabytes in known], label=name, **look)
    style.dress(times, "time, forward and backward", "T, queries and keys", "seconds", grid=True)
    style.dress(memory, "memory beyond the inputs", "T, queries and keys", "MB", grid=True)
    for axes in (times, memory):
        axes.set_xticks([T for T, _ in causal], [str(T) for T, _ in causal], rotation=45)
        axes.minorticks_off()
    style.legend(times)
    figure.suptitle("Causal attention, one sequence, 8 heads of 64", fontsize=12, color=style.INK, family=style.FONT)
    style.save(figure, path)
