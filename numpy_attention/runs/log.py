"""log.jsonl: a JSON object a line, on its way to the disk as soon as it is written.

    {"step": 200, "loss": 1.71, "grad_norm": 0.62, "learning_rate": 0.004, "tokens_per_second": 31000.0, ...}

A run that was killed may have logged steps after its last checkpoint, and cut off its last line. Both are dropped when
the run goes on, for it takes those steps again.
"""

import json
from pathlib import Path
from typing import Any

from numpy_attention.files import reading, whole_or_not_at_all, writing


class Log:
    """Appends lines to a log, after dropping those that a killed run wrote after its last checkpoint."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_log(path) if line["step"] <= step]
        with writing(path.parent), whole_or_not_at_all(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        with writing(self.path.parent), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; a line that a kill has cut off is left out.

    Raises: InputError, in one line, for what cannot be read.
    """
    if not path.is_file():
        return []
    lines = []
    with reading(path) as file:
        texts = file.read().decode("utf-8", "replace").splitlines()
    for text in texts:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # cut off; or damaged into numbers or lists without end
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines
