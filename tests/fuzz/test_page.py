"""docs/reliability.md shows the stored tally of the attacks: an hour or more without findings."""

import json

import pytest

from tests.fuzz.page import ATTACKS, PAGE, TALLY, table
from tests.generated import block

TOLD = json.loads(TALLY.read_text(encoding="utf-8"))


def test_the_page_shows_the_stored_tally() -> None:
    assert block("tally", table(TOLD)) in PAGE.read_text(encoding="utf-8")


def test_the_tally_is_of_an_hour_of_all_attacks_without_findings() -> None:
    assert TOLD["seconds"] >= 3600
    assert TOLD["found"] == []
    assert {kind.partition(": ")[0] for kind in TOLD["kinds"]} == set(ATTACKS)
    assert TOLD["tries"] == sum(sum(outcomes.values()) for outcomes in TOLD["kinds"].values())


def test_outcomes_are_counted_for_each_attack() -> None:
    kinds = {"runs: killed in a save": {"killed": 1200, "right": 3}, "runs: goes on": {"interrupted": 4, "refused": 2}}
    kinds["arrays"] = {"refused": 5, "refused, by Python perhaps": 6, "right": 7}
    told = {"seconds": 3600, "seed": 8, "found": ["a traceback"], "kinds": kinds}
    said = table(told)
    assert f"| {ATTACKS['runs']} | 1,209 | 2 | 1,204 |" in said
    assert f"| {ATTACKS['arrays']} | 18 | 11 | 0 |" in said
    assert "| together | 1,227 | 13 | 1,204 |" in said
    assert "60 minutes on one core, seeds from 8 on; findings: 1." in said
    with pytest.raises(KeyError):
        table(told | {"kinds": {"something new": {"right": 1}}})
