"""log.jsonl: one JSON object in each line. Each line is in the file as soon as it is logged.

    {"step": 200, "loss": 1.71, "grad_norm": 0.62, "learning_rate": 0.004, "tokens_per_second": 31000.0, ...}

A killed run may have logged steps after its last checkpoint, and its last line may be incomplete. A resumed run
repeats these steps, so it first removes their lines and the incomplete line.
"""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from numpy_attention.files import atomic_write, reading, writing


class Log:
    """Appends lines to a log, after dropping the lines that a killed run wrote after its last checkpoint."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        before = [line for line in read_log(path) if line["step"] <= step]
        with writing(path), atomic_write(path) as temporary:
            temporary.write_text("".join(map(_line, before)), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(_line(entry))


def _line(entry: dict[str, Any]) -> str:
    """The entry as JSON, which has no NaN and no infinity: such a number becomes null."""
    finite = {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in entry.items()}
    return json.dumps(finite) + "\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, without an incomplete line; none if the log does not exist.

    Raises: InputError if the file cannot be read.
    """
    lines = []
    if path.exists():
        with reading(path), open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                with contextlib.suppress(ValueError):  # a kill or a power cut has left it incomplete
                    lines.append(json.loads(line))
    return lines
