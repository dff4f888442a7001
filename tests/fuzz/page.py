"""The table of docs/reliability.md, from the stored counts of an hour of attacks.

    FUZZ_TALLY=tests/fuzz/tally.json python -m pytest tests/fuzz -m hour -s
    python -m tests.fuzz.page
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.generated import with_block

TALLY = Path(__file__).with_name("tally.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ATTACKS = {
    "runs": "runs that are started, killed, stopped, damaged, resumed, or started twice",
    "ranks": "the same attacks on runs of two processes under MPI",
    "checkpoints": "checkpoints with changed bits, or forged with correct checksums",
    "pretrained": "GGUF, safetensors, tokenizer and settings files of models, changed or forged",
    "settings": "TOML files of settings",
    "arguments": "argument lists of every command",
    "streams": "output that is closed, full, cut off, or cannot encode a character",
    "arrays": "public functions and classes with odd arrays and numbers",
    "the checker": "the checker with odd functions",
    "answers": "exercise answers that loop, fork, print, or fake a result",
}


def table(tally: dict[str, Any]) -> str:
    """For each kind of attack: how often it was tried and how it ended. Below: the number of findings."""
    counts = {name: Counter[str]() for name in ATTACKS}
    for kind, outcomes in tally["kinds"].items():
        for outcome, times in outcomes.items():
            counts[kind.partition(": ")[0]][outcome.partition(",")[0]] += times
    counts["total"] = sum(counts.values(), Counter())
    lines = ["| attack | times | refused | killed or interrupted |", "|---|---|---|---|"]
    for name, of in counts.items():
        row = of.total(), of["refused"], of["killed"] + of["interrupted"]
        lines.append(f"| {ATTACKS.get(name, name)} | {' | '.join(f'{n:,}' for n in row)} |")
    run = f"The attacks ran for {tally['seconds'] / 60:.0f} minutes on one core, with seeds from {tally['seed']} on"
    found = len(tally["found"]) or "none"
    return "\n".join([*lines, "", f"{run}. Errors found: {found}. All attacks ended as this page promises."])


def main() -> None:
    """Write the page."""
    content = table(json.loads(TALLY.read_text(encoding="utf-8")))
    PAGE.write_text(with_block(PAGE.read_text(encoding="utf-8"), "tally", content), encoding="utf-8")


if __name__ == "__main__":
    main()
