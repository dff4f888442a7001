"""Attacks on this package: a few tries in every run of the tests, more in the slow tests, an hour with a marker.

    python -m pytest tests/fuzz                          a few examples of every attack
    python -m pytest tests/fuzz -m slow                  the full number of examples
    python -m pytest tests/fuzz -m hour -s               all attacks in turn, for an hour; prints every seed
    FUZZ_SECONDS=600 FUZZ_SEED=3 python -m pytest ...    for ten minutes, starting with this seed
    FUZZ_TALLY=tests/fuzz/tally.json python -m pytest ...       writes the number of tries to this file

An attack is a Hypothesis test or state machine that draws an example, runs it, and judges the outcome:

    @attack(count=20)
    @given(file=hostile_files())
    def test_an_invalid_checkpoint_is_refused(file: bytes) -> None:
        ...
        tally("checkpoints", "refused")

An example that found a mistake stays, as an `@example` of its attack.
"""

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LINE = 500  # characters of an error message, with the name of the program
FEW = 4  # every run of the tests tries one of so many examples
AT_ONCE = 5  # factor: examples in a round of the hour / in the slow tests
HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

ATTACKS: dict[str, "Attack"] = {}
TRIED: Counter[tuple[str, str]] = Counter()


def tally(kind: str, outcome: str) -> None:
    """Count one try of this kind with this outcome: "refused", "right", "killed"."""
    TRIED[kind, outcome] += 1


class Attack:
    """An attack, and its number of examples in the slow tests."""

    def __init__(self, try_: Callable[..., Any], count: int, dear: bool = False) -> None:
        self.try_, self.count, self.dear = try_, count, dear
        self.phases = [phase for phase in Phase if not dear or phase not in (Phase.shrink, Phase.explain)]

    def round(self, seed: int) -> None:
        """Run many examples from this seed.

        Raises: the error of the attack with the example, if there is a finding.
        """
        many = settings(
            max_examples=AT_ONCE * self.count, deadline=None, database=None, derandomize=False, print_blob=True,
            suppress_health_check=HEALTH, phases=self.phases,
        )
        run_with(hypothesis.seed(seed)(self.try_), many)

    def once(self, few: bool = False) -> None:
        """Run the examples according to the profile: in every run only a few, and for a dear attack no stored examples.

        Raises: the error of the attack with the example, if there is a finding.
        """
        least = 1 if self.dear else 2  # Hypothesis draws the simplest example first
        count = max(least, self.count // FEW) if few else self.count
        phases = [phase for phase in self.phases if not (few and self.dear and phase is Phase.explicit)]
        some = settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=HEALTH, phases=phases
        )
        run_with(self.try_, some)


def run_with(try_: Callable[..., Any], chosen: settings) -> None:
    """Run a test or a state machine with these settings."""
    if isinstance(try_, type) and issubclass(try_, RuleBasedStateMachine):
        run_state_machine_as_test(try_, settings=chosen)
    else:
        vars(try_).pop("_hypothesis_internal_settings_applied", None)  # for another round, with other settings
        chosen(try_)()


def attack(count: int, dear: bool = False) -> Callable[[Callable[..., Any]], Callable[[bool], None]]:
    """Turn a Hypothesis test or a state machine into a test, and add it to the attacks of the hour.

    An attack is `dear` if an example takes a second or depends on timing. Then stored examples run only in the slow
    tests, and findings are not shrunk.
    """

    def made(try_: Callable[..., Any]) -> Callable[[bool], None]:
        one = ATTACKS[f"{try_.__module__}.{try_.__name__}"] = Attack(try_, count, dear)

        @pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "all"])
        def test(few: bool) -> None:
            one.once(few)

        test.__name__, test.__doc__, test.__module__ = try_.__name__, try_.__doc__, try_.__module__
        return test

    return made


def all_in_turn(seconds: float, seed: int) -> list[str]:
    """Run all attacks again and again until the time is over, each time with new seeds; return the findings."""
    found, end = [], time.monotonic() + seconds
    for turn in itertools.count():
        for name, one in ATTACKS.items():
            left = end - time.monotonic()
            if turn and left <= 0:
                return found
            print(f"{left:6.0f} s left, seed {seed}: {name}", flush=True)
            try:
                one.round(seed)
            except Exception as error:
                found.append(f"{name}, seed {seed}: {told(error)}")
                print(found[-1], flush=True)
            seed += 1
    return found


def told(error: BaseException) -> str:
    """The text of an error with its notes, which contain the example; for a group of errors, of each error."""
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", []), *map(told, within)])


def write_tally(path: Path, seconds: float, seed: int, found: list[str]) -> None:
    """Write the number of tries, for the page on reliability."""
    kinds: dict[str, dict[str, int]] = {}
    for (kind, outcome), times in sorted(TRIED.items()):
        kinds.setdefault(kind, {})[outcome] = times
    said = {"seconds": round(seconds), "seed": seed, "tries": sum(TRIED.values()), "found": found, "kinds": kinds}
    path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def asked(name: str, default: int) -> int:
    """A number from an environment variable."""
    return int(os.environ.get(name, default))
