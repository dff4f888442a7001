"""The results of the drawn mutations, stored in strength.json: the name, the kind and the test that notices it.

`table` is the table in docs/gallery.md, written by tests/catalogue/gallery_page.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutations.draw import PACKAGES, drawn
from tests.mutations.explained import EXPLAINED

STORED = Path(__file__).with_name("strength.json")
Results = dict[str, dict[str, Any]]


def stored() -> Results:
    """The stored results, by the names of the mutations."""
    return {one["name"]: one for one in json.loads(STORED.read_text("utf-8"))}


def store(results: Results) -> None:
    """Write the results of the drawn mutations by package, but not of mutations that were not tried on all tests."""
    names = [one.name for package, count in PACKAGES.items() for one in drawn(package, count)]
    found = [results[name] for name in names if name in results]
    found = [one for one in found if one["killed_by"] or is_explained(one["name"]) or one.get("asked") == "all"]
    lines = [json.dumps({key: one[key] for key in ("name", "kind", "killed_by")}) for one in found]
    STORED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def is_explained(name: str) -> bool:
    """Whether a reason exists why no test notices this mutation."""
    place, _, rest = name.partition(": ")
    change, line, _ = rest.split(" | ", 2) if rest.count(" | ") == 2 else (*rest.rsplit(" | ", 2)[:2], "")
    return any(one.place == place and {change, f"{change} | {line}"} & {*one.changes} for one in EXPLAINED)


def table(results: Results) -> Iterator[str]:
    """A row for each package."""
    yield "| package | changes tried | noticed | change no result |"
    yield "|---|---|---|---|"
    rows = []
    for package in PACKAGES:
        found = [one for one in results.values() if one["name"].startswith(f"{package}/")]
        noticed = sum(bool(one["killed_by"]) for one in found)
        explained = sum(not one["killed_by"] and is_explained(one["name"]) for one in found)
        rows.append((package, len(found), noticed, explained))
    rows.append(("total", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
