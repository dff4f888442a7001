"""log.jsonl: a JSON object a line, on its way to the disk as soon as it is written."""

import json
import os
from pathlib import Path
from typing import Any


class Log:
    """Appends lines to a log, after dropping those that a killed run wrote behind its last checkpoint."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_log(path) if line["step"] <= step]
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        os.replace(temporary, path)

    def write(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; a line that a kill has cut off is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # cut off; or damaged into numbers or lists without end
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines
