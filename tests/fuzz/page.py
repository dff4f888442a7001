"""The table of docs/reliability.md, from the tally of an hour of attacks.

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
    "runs": "runs started, killed, stopped, damaged, gone on with, two at once",
    "ranks": "the same with two processes under MPI",
    "checkpoints": "checkpoints damaged by the bit, or forged with checksums that agree",
    "pretrained": "GGUF, safetensors, tokenizers and settings of models, likewise",
    "settings": "TOML files of settings",
    "arguments": "argument lists of every command",
    "streams": "output that is closed, full, cut off, or has no letters for it",
    "arrays": "public functions and classes with odd arrays and numbers",
    "the checker": "the checker with odd functions",
    "answers": "answers for the tutor that loop, fork, print and lie",
}


def table(told: dict[str, Any]) -> str:
    """The number of tries of each attack, their outcomes, and the findings."""
    counts = {name: Counter[str]() for name in ATTACKS}
    for kind, outcomes in told["kinds"].items():
        for outcome, times in outcomes.items():
            counts[kind.partition(": ")[0]][outcome.partition(",")[0]] += times
    counts["together"] = sum(counts.values(), Counter())
    lines = ["| tried | times | refused | killed or interrupted |", "|---|---|---|---|"]
    for name, of in counts.items():
        row = of.total(), of["refused"], of["killed"] + of["interrupted"]
        lines.append(f"| {ATTACKS.get(name, name)} | {' | '.join(f'{n:,}' for n in row)} |")
    where = f"{told['seconds'] / 60:.0f} minutes on one core, seeds from {told['seed']} on"
    found = len(told["found"]) or "none"
    return "\n".join([*lines, "", f"{where}; findings: {found}. What was not refused ended as it should."])


def main() -> None:
    """Write the page."""
    content = table(json.loads(TALLY.read_text(encoding="utf-8")))
    PAGE.write_text(with_block(PAGE.read_text(encoding="utf-8"), "tally", content), encoding="utf-8")


if __name__ == "__main__":
    main()
