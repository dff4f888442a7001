"""The table of docs/tasks.md: every task is trained with five seeds, each run in an empty folder.

    python -m tests.benchmarks.task_seeds      # a quarter of an hour on two cores

A run that is in tests/benchmarks/tasks.json is not repeated, so an interrupted measurement continues with the next run;
delete that file to start again. At the end the script writes the table into the page.
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
RESULTS, PAGE = Path(__file__).with_name("tasks.json"), ROOT / "docs" / "tasks.md"
SEEDS = range(5)


class Row(NamedTuple):
    """A row of the table: options of the command, the question, a figure for comparison, decimals of our figure."""

    options: str
    question: str
    compare: str
    decimals: int = 1


ROWS = (
    Row("sum", "is the sum of eight numbers below 100 greater than 400?", "52.2 %, always \"no\""),
    Row("sum --as-in-the-lesson", "the same question, trained as in that tutorial", "51.9 %, the JAX tutorial's code"),
    Row("reverse", "write sixteen digits backwards; correct positions", "100.00 %, UvA tutorial 6", 2),
    Row("copy", "copy ten symbols, encoder-decoder; exact copies", "The Annotated Transformer: one copy, exact"),
    Row("dates", '"3rd of March, 1987" to "1987-03-03"; exact answers for new pairs of date and written form', ""),
    Row("digits", "classify scikit-learn's 8 x 8 images, row by row", "97.8 %, scikit-learn's logistic regression"),
    Row("induction", "continue a sequence of random symbols when it is repeated; correct symbols", "1.6 %, guessing"),
)


def run(options, seed):
    """Run one training in a new folder; return its last held-out figure and the seconds of the whole command."""
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
    """Run every row with every seed, one after the other, and save the results after each run."""
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
    """The stored runs; each has its options, seed, figure and seconds."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def table(found):
    """The block of the page."""
    lines = ["| task | question | held-out figure here | for comparison | seconds |", "|---|---|---|---|---|"]
    for row in ROWS:
        runs = [one for one in found if one["options"] == row.options]
        figures = [100 * one["figure"] for one in runs]
        seconds = min(one["seconds"] for one in runs)  # other work on the machine only adds time
        cells = [f"`{row.options}`", row.question, spread(figures, row.decimals), row.compare, f"{seconds:.0f}"]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def spread(figures, decimals):
    """The median, the lowest and the highest figure: "98.9 % (97.8 to 99.2)"."""
    three = statistics.median(figures), min(figures), max(figures)
    median, low, high = (f"{number:.{decimals}f}" for number in three)
    return f"{median} % ({low} to {high})" if low != high else f"{median} %, every seed"


def write(found):
    """Put the table between its markers."""
    PAGE.write_text(with_block(PAGE.read_text(encoding="utf-8"), "tasks", table(found)), encoding="utf-8")


if __name__ == "__main__":
    write(measure())
