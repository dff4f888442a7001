"""How strong the checks are: change the source in one place, and ask who notices.

    python -m tests.mutations chapters                               every operator of the ops, asked of the catalogue
    python -m tests.mutations chapters softmax                       those of one chapter
    python -m pytest -p tests.mutations.reach --reach=reach.json     which tests reach which functions, once
    python -m tests.mutations reach.json                             drawn mutations of all rooms, asked of the tests
    python -m tests.mutations reach.json runs --matching Trainer     those of one room whose names match

Results of the rooms are kept in WORK/results.jsonl, one line each as they come, so that a run can be stopped and go on:
what was noticed is not tried again, what survived is. What is drawn is stored in strength.json besides, for
docs/gallery.md; with --anew it is tried again, first with the test that noticed it last time.
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
from tests.mutations.strength import store, stored


def main() -> None:
    """Of rooms make a copy of the tree and start again in it; there, try what is asked for."""
    if sys.argv[1:2] == ["chapters"]:
        from tests.mutations import chapters  # imports the package, which a trial's process must not

        chapters.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("reach", type=Path, help="what tests.mutations.reach has written")
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(ROOMS)}; all unless given")
    parser.add_argument("--matching", metavar="REGEX", help="all mutations of these names, drawn or not")
    parser.add_argument("--anew", action="store_true", help="begin with no results")
    parser.add_argument("--near", action="store_true", help="ask the tests of the same room only")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "numpy_attention_mutations")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.here:
        tree = trial.copy_of_the_tree(ROOT, asked.work)
        settings = {"PYTHONPATH": str(tree), "CI": "true", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "tests.mutations", *sys.argv[1:], "--here"]
        try:
            sys.exit(subprocess.run(command, cwd=tree, env=os.environ | settings, check=False).returncode)
        finally:
            store(stored() | read_results(asked.work / "results.jsonl"))
    trial.warm_up()
    reach, results, before = trial.loaded(asked.reach), asked.work / "results.jsonl", stored()
    known = {} if asked.anew else before | read_results(results)
    for mutation in chosen(asked.rooms or list(ROOMS), asked.matching):
        if known.get(mutation.name, {}).get("killed_by"):
            continue
        told = {"name": mutation.name, "kind": mutation.kind, "killed_by": "", "asked": "none: explained"}
        started = time.monotonic()
        if not reason_for(mutation):
            first = before.get(mutation.name, {}).get("killed_by", "")
            told["killed_by"] = trial.killed_by(
                Path.cwd(), mutation, reach, asked.work / "last.log", first, near_only=asked.near
            )
            told["asked"] = "near" if asked.near else "all"
        with results.open("a") as file:
            file.write(json.dumps(told) + "\n")
        seconds = time.monotonic() - started
        said = told["killed_by"] or reason_for(mutation) or "SURVIVED"
        print(f"{said}, {seconds:.1f} s\n    {mutation.kind}: {mutation.name}", flush=True)


def chosen(rooms: list[str], matching: str | None) -> list[Mutation]:
    """The drawn mutations of these rooms, or all that match."""
    if matching is None:
        return [mutation for room in rooms for mutation in drawn(room, ROOMS[room])]
    return [one for room in rooms for one in mutations_of(room) if re.search(matching, f"{one.kind}: {one.name}")]


def read_results(path: Path) -> dict[str, Any]:
    """The last result of each mutation, by its name."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {told["name"]: told for told in map(json.loads, lines)}


if __name__ == "__main__":
    main()
