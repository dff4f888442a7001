"""The attacks of this folder for an hour; and tests that they can find a mistake."""

import importlib
import os
import secrets
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.fuzz.attack import ATTACKS, TRIED, Attack, all_in_turn, asked, write_tally

HERE = Path(__file__).parent


def test_a_round_finds_a_mistake_and_prints_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    @given(st.integers(0, 10**6))
    def wrong_beyond_a_thousand(n: int) -> None:
        assert n <= 1000

    class WrongAfterThree(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        @rule()
        def more(self) -> None:
            self.count += 1

        @invariant()
        def few(self) -> None:
            assert self.count < 3

    monkeypatch.setitem(ATTACKS, "numbers", Attack(wrong_beyond_a_thousand, count=20))
    monkeypatch.setitem(ATTACKS, "machine", Attack(WrongAfterThree, count=5))
    for name in [name for name in ATTACKS if name not in ("numbers", "machine")]:
        monkeypatch.delitem(ATTACKS, name)
    numbers, machine = all_in_turn(0, seed=5)
    assert numbers.startswith("numbers, seed 5: AssertionError")
    assert "n=1001" in numbers
    assert machine.startswith("machine, seed 6: AssertionError")


def test_a_second_round_draws_other_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[int]] = []

    @given(st.integers())
    def noted(n: int) -> None:
        drawn[-1].append(n)

    one = Attack(noted, count=4)
    for seed in (5, 6, 5):
        drawn.append([])
        one.round(seed)
    assert drawn[0] == drawn[2] != drawn[1]


@pytest.mark.hour
def test_an_hour_of_attacks_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(f"tests.fuzz.{path.stem}")
    seconds, seed = asked("FUZZ_SECONDS", 3600), asked("FUZZ_SEED", secrets.randbelow(10**9))
    TRIED.clear()
    with capsys.disabled():
        found = all_in_turn(seconds, seed)
    if where := os.environ.get("FUZZ_TALLY"):
        write_tally(Path(where), seconds, seed, found)
    assert found == []
