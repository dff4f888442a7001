"""The README's table of tasks: every task trained with five seeds, each run in an empty folder.

    python -m tests.benchmarks.task_seeds      # a quarter of an hour on two cores

A run that is in tests/benchmarks/tasks.json is not repeated, so an interrupted measurement goes on where it was; delete
that file to begin anew. At the end the table is written into the README.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from numpy_attention.files import atomic_write
from tests.generated import with_block

ROOT = Path(__file__).parents[2]
RESULTS, README = Path(__file__).with_name("tasks.json"), ROOT / "README.md"
SEEDS = range(5)


class Row(NamedTuple):
    """A line of the table: what is run, what it asks, what to hold its figure against, and the figure's decimals."""

    options: str
    asks: str
    beside: str
    decimals: int = 1


ROWS = (
    Row("sum", "is the sum of eight numbers above the middle?", "51.9 %, as the lesson trained it"),
    Row("sum --as-in-the-lesson", "the same, trained as the lesson trained it", "51.9 %, published"),
    Row("reverse", "write sixteen digits backwards, positions right", "100.00 %, published", 2),
    Row("copy", "copy ten symbols, encoder-decoder, greedy, exactly", "copies exactly, published"),
    Row("dates", '"3rd of March, 1987" to "1987-03-03", exactly; forms and dates not trained on together', ""),
    Row("digits", "scikit-learn's 8 x 8 images, row by row", "97.8 %, its logistic regression"),
    Row("induction", "go on with a piece of random symbols when it comes again, symbols right", "1.6 %, guessing"),
)


def run(options, seed):
    """One training in a folder of its own: its last held-out figure, and the seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "numpy_attention", "train", "--task", *options.split(), "--seed", str(seed)]
        start = time.perf_counter()
        subprocess.run(
            [*command, "--out", "run"], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        last = json.loads(Path(folder, "run", "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    figure = last["val_exact"] if "val_exact" in last else last["val_accuracy"]
    return {"options": options, "seed": seed, "figure": figure, "seconds": round(seconds, 1)}


def measure():
    """Every row with every seed, one after the other; the file is whole after each run."""
    found = read() if RESULTS.exists() else []
    known = {(one["options"], one["seed"]) for one in found}
    for seed in SEEDS:
        for row in ROWS:
            if (row.options, seed) in known:
                continue
            load = os.getloadavg()[0]
            found.append(run(row.options, seed))
            print(found[-1], f"load before it {load:.1f}", flush=True)
            with atomic_write(RESULTS) as temporary:
                temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def read():
    """The stored runs: of each its options, its seed, its figure and its seconds."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def table(found):
    """The block of the README."""
    lines = ["| task | what is asked | held-out figure here | to compare with | seconds |", "|---|---|---|---|---|"]
    for row in ROWS:
        runs = [one for one in found if one["options"] == row.options]
        figures = [100 * one["figure"] for one in runs]
        seconds = min(one["seconds"] for one in runs)  # other work on the machine only adds
        cells = [f"`{row.options}`", row.asks, spread(figures, row.decimals), row.beside, f"{seconds:.0f}"]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def spread(figures, decimals):
    """The median, and from where to where: "98.9 % (97.8 to 99.2)"."""
    three = statistics.median(figures), min(figures), max(figures)
    median, low, high = (f"{number:.{decimals}f}" for number in three)
    return f"{median} % ({low} to {high})" if low != high else f"{median} %, each time"


def write(found):
    """Put the table between its markers."""
    README.write_text(with_block(README.read_text(encoding="utf-8"), "tasks", table(found)), encoding="utf-8")


if __name__ == "__main__":
    write(measure())
