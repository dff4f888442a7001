"""Measures how strong the checks are: changes the source in one place, and runs the checks on the changed source.

    python -m tests.mutations chapters                               all operators of the ops, checked by the catalogue
    python -m tests.mutations chapters softmax                       the operators of one chapter
    python -m pytest -p tests.mutations.reach --reach=reach.json     once: which tests reach which functions
    python -m tests.mutations reach.json                             drawn mutations of all packages, checked by tests
    python -m tests.mutations reach.json runs --matching Trainer     mutations of one package whose names match

Results of the packages are written to WORK/results.jsonl, one line for each mutation, so a run can be interrupted and
continued: a mutation that was noticed is not tried again, but a mutation that survived is. Results of drawn mutations
are also stored in strength.json, for docs/gallery.md. With --anew they are tried again, starting with the test that
noticed the mutation last time.
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
from tests.mutations.draw import PACKAGES, ROOT, drawn, mutations_of
from tests.mutations.explained import reason_for
from tests.mutations.strength import store, stored


def main() -> None:
    """For packages, copy the tree and run this script again in the copy; there, try the mutations."""
    if sys.argv[1:2] == ["chapters"]:
        from tests.mutations import chapters  # imports the package, which the process of a trial must not do

        chapters.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("reach", type=Path, help="the file that tests.mutations.reach has written")
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; default: all")
    parser.add_argument("--matching", metavar="REGEX", help="all mutations with matching names, drawn or not")
    parser.add_argument("--anew", action="store_true", help="ignore stored results")
    parser.add_argument("--near", action="store_true", help="run only the tests of the same package")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "numpy_attention_mutations")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.here:
        tree = trial.copy_of_the_tree(ROOT, arguments.work)
        settings = {"PYTHONPATH": str(tree), "CI": "true", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "tests.mutations", *sys.argv[1:], "--here"]
        try:
            sys.exit(subprocess.run(command, cwd=tree, env=os.environ | settings, check=False).returncode)
        finally:
            store(stored() | read_results(arguments.work / "results.jsonl"))
    trial.warm_up()
    reach, results, before = trial.loaded(arguments.reach), arguments.work / "results.jsonl", stored()
    known = {} if arguments.anew else before | read_results(results)
    for mutation in chosen(arguments.packages or list(PACKAGES), arguments.matching):
        if known.get(mutation.name, {}).get("killed_by"):
            continue
        result = {"name": mutation.name, "kind": mutation.kind, "killed_by": "", "asked": "none: explained"}
        started = time.monotonic()
        if not reason_for(mutation):
            first = before.get(mutation.name, {}).get("killed_by", "")
            result["killed_by"] = trial.killed_by(
                Path.cwd(), mutation, reach, arguments.work / "last.log", first, near_only=arguments.near
            )
            result["asked"] = "near" if arguments.near else "all"
        with results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        seconds = time.monotonic() - started
        said = result["killed_by"] or reason_for(mutation) or "SURVIVED"
        print(f"{said}, {seconds:.1f} s\n    {mutation.kind}: {mutation.name}", flush=True)


def chosen(packages: list[str], matching: str | None) -> list[Mutation]:
    """The drawn mutations of these packages, or all mutations that match."""
    if matching is None:
        return [mutation for package in packages for mutation in drawn(package, PACKAGES[package])]
    every = [one for package in packages for one in mutations_of(package)]
    return [one for one in every if re.search(matching, f"{one.kind}: {one.name}")]


def read_results(path: Path) -> dict[str, Any]:
    """The last result of each mutation, by its name."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {result["name"]: result for result in map(json.loads, lines)}


if __name__ == "__main__":
    main()
