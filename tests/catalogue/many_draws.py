"""Search for false alarms: many random draws of every entry of the catalogue; a stopped run continues from its log.

    PYTHONPATH=. python tests/catalogue/many_draws.py --draws 1000 --log draws.json                    all entries
    PYTHONPATH=. python tests/catalogue/many_draws.py --draws 1000 --log draws.json --seconds 200      stop after 200 s
    PYTHONPATH=. python tests/catalogue/many_draws.py --draws 1000 --log draws.json layer_norm         one op

Draw number i has seed i. Even draws have sizes that all differ, odd draws any sizes from 1 to 4. Draws 0, 9, 40, 49,
80 ... check every element of every gradient, the other draws check 24 random elements.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.catalogue import properties, table
from numpy_attention.catalogue.entry import Entry

MOST = 100  # numbers in the inputs of a draw with any sizes


def any_sizes(entry: Entry, rng: np.random.Generator) -> dict[str, Any]:
    """Random sizes from 1 to 4, except those that the entry sets; smaller ones if the inputs would be too large."""
    names = [name for name in entry.parsed.size_names if name not in entry.fixed]
    for largest in (4, 4, 4, 3, 3, 2, 2, 1):
        sizes: dict[str, Any] = dict(entry.fixed)
        for name in names:
            if name == "...":
                sizes[name] = tuple(int(n) for n in rng.integers(1, largest + 1, rng.integers(0, 4)))
            else:
                least = entry.at_least.get(name, 1)
                sizes[name] = int(rng.integers(least, max(least, largest) + 1))
        if sum(math.prod(shape) for shape in entry.parsed.shapes(sizes).values()) <= MOST:
            break
    return sizes


def draw(entry: Entry, number: int) -> None:
    """Check one draw; raises AssertionError with the report, which contains the seed."""
    sizes = any_sizes(entry, np.random.default_rng([number, 17])) if number % 2 else None
    try:
        if number % 40 in (0, 9):
            properties.gradients_agree_with_differences(entry, number, sizes)
        else:
            properties.a_sample_of_the_gradients_agrees(entry, number, sizes)
    except AssertionError as error:
        raise AssertionError(f"{entry.name}, draw {number}, sizes {sizes}: {error}") from error


def main() -> int:
    """Continue from the log, with the same number of draws for each entry; return the number of alarms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="ops, layers or models (default: all)")
    parser.add_argument("--draws", type=int, default=1000, help="of each entry (default: 1000)")
    parser.add_argument("--log", type=Path, required=True, help="file for the number of draws and the alarms")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time (default: never)")
    arguments = parser.parse_args()
    log = {"drawn": {}, "alarms": [], "seconds": 0}
    if arguments.log.exists():
        log = json.loads(arguments.log.read_text("utf-8"))
    entries, started, drawn = table.named(arguments.names or None), time.perf_counter(), log["drawn"]
    before = log["seconds"]

    def note() -> None:
        log["seconds"] = round(before + time.perf_counter() - started)
        new = arguments.log.with_suffix(".new")
        new.write_text(json.dumps(log, indent=1))
        os.replace(new, arguments.log)

    late = False
    for goal in range(25, arguments.draws + 25, 25):
        for entry in entries:
            for number in range(drawn.get(entry.name, 0), min(goal, arguments.draws)):
                late = time.perf_counter() - started > arguments.seconds
                if late:
                    break
                try:
                    draw(entry, number)
                except AssertionError as error:
                    log["alarms"].append(str(error))
                    print(error, flush=True)
                drawn[entry.name] = number + 1
            if late:
                break
        note()
        if late:
            break
    counts = [drawn.get(entry.name, 0) for entry in entries]
    print(
        f"{len(entries)} entries, {min(counts)} to {max(counts)} draws each, {sum(counts)} in all; "
        f"{len(log['alarms'])} alarms; {log['seconds']} s"
    )
    return len(log["alarms"])


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
