"""log.jsonl: one JSON object in each line. Each line is in the file as soon as it is logged.

    {"step": 200, "loss": 1.71, "grad_norm": 0.62, "learning_rate": 0.004, "tokens_per_second": 31000.0, ...}

A killed run may have logged steps after its last checkpoint, and its last line may be incomplete. A resumed run
repeats these steps, so it first removes their lines and the incomplete line. It also removes invalid lines, for example
lines of another program.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from numpy_attention.files import atomic_write, reading, writing

MAX_LINE = 2**20  # in bytes; a line of a run has a few hundred bytes
LARGEST = 1e300  # the largest number that a plot can show: the length of its axis must not overflow


class Log:
    """Appends lines to a log, after dropping the lines that a killed run wrote after its last checkpoint."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        before = [line for line in read_log(path) if line["step"] <= step]
        with writing(path), atomic_write(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in before), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log. An incomplete last line is dropped silently; other invalid lines are dropped with a warning.

    Raises: InputError if the file cannot be read.
    """
    if not path.is_file():
        return []
    lines, odd = [], 0
    with reading(path), open(path, "rb") as file:
        while raw := file.readline(MAX_LINE):
            line = _entry(raw)
            if line is not None:
                lines.append(line)
            elif raw.endswith(b"\n"):
                odd += 1
    if odd:
        count = "1 invalid line" if odd == 1 else f"{odd:,} invalid lines"
        print(f"numpy-attention: ignored {count} of {path.name}", file=sys.stderr)
    return lines


def _entry(raw: bytes) -> dict[str, Any] | None:
    """The content of a line (a dict of numbers, of which `step` is an integer), or None if the line is invalid."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):  # incomplete; or damaged, with a huge number or deeply nested lists
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int or not 0 <= line["step"] < 2**63:
        return None
    valid = all(type(value) is str if name == "skipped" else _is_number(value) for name, value in line.items())
    return line if valid else None


def _is_number(value: Any) -> bool:
    """Whether a plot can show the value. A run that diverges logs infinities and NaN; these are valid, too."""
    if isinstance(value, float) and not math.isfinite(value):
        return True
    return type(value) in (int, float) and abs(value) <= LARGEST
