"""log.jsonl: a JSON object a line, on its way to the disk as soon as it is written.

    {"step": 200, "loss": 1.71, "grad_norm": 0.62, "learning_rate": 0.004, "tokens_per_second": 31000.0, ...}

A run that was killed may have logged steps after its last checkpoint, and cut off its last line. Both are dropped when
the run goes on, for it takes those steps again. So are lines that no run writes: other programs and failing disks may
have written to it too.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from numpy_attention.files import atomic_write, reading, writing

MAX_LINE = 2**20  # bytes: those of a run are a few hundred
LARGEST = 1e300  # that a picture has room for: the width of its axes is a number too


class Log:
    """Appends lines to a log, after dropping those that a killed run wrote after its last checkpoint."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_log(path) if line["step"] <= step]
        with writing(path), atomic_write(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log. One that a kill has cut off is left out; others that no run writes, with a word.

    Raises: InputError, in one line, for what cannot be read.
    """
    if not path.is_file():
        return []
    lines, odd = [], 0
    with reading(path) as file:
        while raw := file.readline(MAX_LINE):
            line = _entry(raw)
            if line is not None:
                lines.append(line)
            elif raw.endswith(b"\n"):
                odd += 1
    if odd:
        lines_of, were = ("line of", "was") if odd == 1 else ("lines of", "were")
        print(f"numpy-attention: {odd:,} {lines_of} {path.name} made no sense and {were} left out", file=sys.stderr)
    return lines


def _entry(raw: bytes) -> dict[str, Any] | None:
    """What a line says, if it may be one of a run: numbers by name, a whole `step` among them."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):  # cut off; or damaged into numbers or lists without end
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int or not 0 <= line["step"] < 2**63:
        return None
    told = all(type(value) is str if name == "skipped" else _is_number(value) for name, value in line.items())
    return line if told else None


def _is_number(value: Any) -> bool:
    """Whether a value is a number that can be drawn; a run that diverges logs infinities and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return True
    return type(value) in (int, float) and abs(value) <= LARGEST
