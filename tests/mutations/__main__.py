"""How strong the tests are outside of ops/: draw mutations, and ask which tests notice.

    python -m pytest -p tests.mutations.reach --reach=reach.json     which tests reach which functions, once
    python -m tests.mutations reach.json                             the drawn mutations of all rooms
    python -m tests.mutations reach.json runs --matching Trainer     those of one room whose names match

Results are kept in WORK/results.jsonl, one line each as they come, so that a run can be stopped and go on: what was
killed is not tried again, what survived is.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.mutations import trial
from tests.mutations.changes import Mutation
from tests.mutations.draw import ROOMS, ROOT, drawn, mutations_of
from tests.mutations.explained import reason_for


def main() -> None:
    """Make the copy and start again in it; there, try what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("reach", type=Path, help="what tests.mutations.reach has written")
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(ROOMS)}; all unless given")
    parser.add_argument("--matching", metavar="REGEX", help="all mutations of these names, drawn or not")
    parser.add_argument("--near", action="store_true", help="ask the tests of the same room only")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "numpy_attention_mutations")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.here:
        tree = trial.copy_of_the_tree(ROOT, asked.work)
        settings = {"PYTHONPATH": str(tree), "CI": "true", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "tests.mutations", *sys.argv[1:], "--here"]
        sys.exit(subprocess.run(command, cwd=tree, env=os.environ | settings, check=False).returncode)
    trial.warm_up()
    reach, results = trial.loaded(asked.reach), asked.work / "results.jsonl"
    known = read_results(results)
    for mutation in chosen(asked.rooms or list(ROOMS), asked.matching):
        last = known.get(mutation.name, {}).get("killed_by", "")
        reason = reason_for(mutation)
        if last or reason:
            continue
        started = time.monotonic()
        killer = trial.killed_by(Path.cwd(), mutation, reach, asked.work / "last.log", near_only=asked.near)
        told = {"name": mutation.name, "kind": mutation.kind, "killed_by": killer}
        with results.open("a") as file:
            file.write(json.dumps(told) + "\n")
        seconds = time.monotonic() - started
        print(f"{killer or 'SURVIVED'}, {seconds:.1f} s\n    {mutation.kind}: {mutation.name}", flush=True)


def chosen(rooms: list[str], matching: str | None) -> list[Mutation]:
    """The drawn mutations of these rooms, or all that match."""
    if matching is None:
        return [mutation for room in rooms for mutation in drawn(room, ROOMS[room])]
    return [one for room in rooms for one in mutations_of(room) if re.search(matching, f"{one.kind}: {one.name}")]


def read_results(path: Path) -> dict[str, Any]:
    """The last result of each mutation, by its name."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {told["name"]: told for told in map(json.loads, lines)}


if __name__ == "__main__":
    main()
