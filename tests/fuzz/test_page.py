"""The table of attacks in docs/reliability.md is the stored one, from an hour or more without a finding."""

import json

import pytest

from tests.fuzz.page import ATTACKS, PAGE, TALLY, table
from tests.generated import block

STORED = json.loads(TALLY.read_text(encoding="utf-8"))


def test_the_page_shows_the_stored_tally() -> None:
    assert block("tally", table(STORED)) in PAGE.read_text(encoding="utf-8")


def test_stored_tally_has_every_attack_an_hour_and_no_finding() -> None:
    assert STORED["seconds"] >= 3600
    assert STORED["found"] == []
    assert {kind.partition(": ")[0] for kind in STORED["kinds"]} == set(ATTACKS)
    assert STORED["tries"] == sum(sum(outcomes.values()) for outcomes in STORED["kinds"].values())


def test_outcomes_are_summed_by_attack_and_an_unknown_attack_is_an_error() -> None:
    kinds = {"runs: killed in a save": {"killed": 1200, "right": 3}, "runs: goes on": {"interrupted": 4, "refused": 2}}
    kinds["arrays"] = {"refused": 5, "refused, by Python perhaps": 6, "right": 7}
    tally = {"seconds": 3600, "seed": 8, "found": ["a traceback"], "kinds": kinds}
    text = table(tally)
    assert f"| {ATTACKS['runs']} | 1,209 | 2 | 1,204 |" in text
    assert f"| {ATTACKS['arrays']} | 18 | 11 | 0 |" in text
    assert "| total | 1,227 | 13 | 1,204 |" in text
    assert "The attacks ran for 60 minutes on one core, with seeds from 8 on. Errors found: 1." in text
    with pytest.raises(KeyError):
        table(tally | {"kinds": {"something new": {"right": 1}}})
