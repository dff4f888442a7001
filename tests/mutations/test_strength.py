"""Every drawn mutation that no test notices has a reason, and every reason belongs to a mutation."""

import pytest

from tests.mutations.draw import PACKAGES, ROOT, mutations_of
from tests.mutations.explained import OF_PACKAGES, reason_for
from tests.mutations.strength import is_explained, stored, table

ALL = {package: list(mutations_of(package)) for package in PACKAGES}


def test_every_explained_change_is_still_a_mutation() -> None:
    known = {(one.place, said) for package in ALL.values() for one in package
             for said in (one.change, f"{one.change} | {one.statement}")}  # fmt: skip
    for explained in OF_PACKAGES:
        for change in explained.changes:
            assert (explained.place, change) in known


def test_stored_mutation_is_noticed_or_explained() -> None:
    assert [name for name, result in stored().items() if not result["killed_by"] and not is_explained(name)] == []


@pytest.mark.slow  # tests get new names; `python -m tests.mutations` tries the mutations of missing entries again
def test_every_named_test_exists() -> None:
    for result in stored().values():
        file, _, name = result["killed_by"].partition("[")[0].partition("::")
        if name:
            assert f"def {name.rpartition('::')[2].split()[0]}(" in (ROOT / file).read_text("utf-8"), result


def test_reason_is_found_by_mutation_and_by_name() -> None:
    explained = [one for package in ALL.values() for one in package if reason_for(one)]
    assert len(explained) >= len(OF_PACKAGES)
    assert all(is_explained(one.name) for one in explained)
    assert not any(is_explained(one.name) for one in ALL["layers"] if not reason_for(one))


def test_table_has_totals() -> None:
    results = [
        {"name": "layers/linear.Linear.forward: a -> b | a | 1", "kind": "name", "killed_by": "tests/x.py::y"},
        {"name": "runs/log.Log.write: a -> b | a | 1", "kind": "name", "killed_by": ""},
    ]
    rows = list(table({one["name"]: one for one in results}))
    assert rows[2] == "| layers | 1 | 1 | 0 |"
    assert rows[-1] == "| total | 2 | 1 | 0 |"
