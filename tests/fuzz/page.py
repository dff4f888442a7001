"""The table of docs/reliability.md, from what an hour of attacks has tried.

    FUZZ_TALLY=tests/fuzz/tally.json python -m pytest tests/fuzz -m hour -s
    python -m tests.fuzz.page
"""

import json
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


def table(found: dict[str, Any]) -> str:
    """How often each was tried, how it ended, and what was found."""
    tries = {name: [0, 0] for name in ATTACKS}
    for kind, outcomes in found["kinds"].items():
        row = tries[kind.partition(": ")[0]]
        row[0] += sum(outcomes.values())
        row[1] += sum(times for outcome, times in outcomes.items() if outcome.startswith("refused"))
    lines = ["| tried | times | refused |", "|---|---|---|"]
    lines += [f"| {ATTACKS[name]} | {all_:,} | {refused:,} |" for name, (all_, refused) in tries.items()]
    lines.append(f"| **together** | **{found['tries']:,}** | **{sum(refused for _, refused in tries.values()):,}** |")
    minutes = f"{found['seconds'] / 60:.0f} minutes on one core, seeds from {found['seed']} on"
    things = "nothing" if not found["found"] else f"{len(found['found'])} things"
    return "\n".join([*lines, "", f"{minutes}: {things} found. What was not refused ended as it should."])


def main() -> None:
    """Write the page."""
    PAGE.write_text(with_block(PAGE.read_text(), "tally", table(json.loads(TALLY.read_text()))))


if __name__ == "__main__":
    main()
