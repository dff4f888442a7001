"""How this package is attacked: a few tries in every run of the tests, more in the slow one, an hour by a marker.

    python -m pytest tests/fuzz                          every attack a few times
    python -m pytest tests/fuzz -m slow                  with as many examples as each says
    python -m pytest tests/fuzz -m hour -s               all of them in turn, for an hour; every seed is printed
    FUZZ_SECONDS=600 FUZZ_SEED=3 python -m pytest ...    for ten minutes, from that seed on
    FUZZ_TALLY=tests/fuzz/tally.json python -m pytest ...       what was tried is written there

An attack is a Hypothesis test or state machine that makes something up, tries it, and judges the outcome:

    @attack(count=20)
    @given(file=hostile_files())
    def test_an_invalid_checkpoint_is_refused(file: bytes) -> None:
        ...
        tally("checkpoints", "refused")

What has once found something stays, as an `@example` of its attack.
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

LINE = 500  # characters of a refusal, with the name of the program before it
FEW = 4  # of so many examples one is tried in every run of the tests
AT_ONCE = 5  # times as many examples in a round of the hour as in the slow tests
HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

ATTACKS: dict[str, "Attack"] = {}
TRIED: Counter[tuple[str, str]] = Counter()


def tally(kind: str, outcome: str) -> None:
    """One more try of that kind, with that outcome: "refused", "right", "killed"."""
    TRIED[kind, outcome] += 1


class Attack:
    """One attack, and how many examples it has in the slow tests."""

    def __init__(self, try_: Callable[..., Any], count: int, dear: bool = False) -> None:
        self.try_, self.count, self.dear = try_, count, dear
        self.phases = [phase for phase in Phase if not dear or phase not in (Phase.shrink, Phase.explain)]

    def round(self, seed: int) -> None:
        """Many examples drawn from this seed.

        Raises: what the attack raises when it finds something, with the example.
        """
        many = settings(
            max_examples=AT_ONCE * self.count, deadline=None, database=None, derandomize=False, print_blob=True,
            suppress_health_check=HEALTH, phases=self.phases,
        )
        run_with(hypothesis.seed(seed)(self.try_), many)

    def once(self, few: bool = False) -> None:
        """Its examples, as the profile has them drawn; few of them, and of a dear one no stored ones, in every run.

        Raises: what the attack raises when it finds something, with the example.
        """
        least = 1 if self.dear else 2  # the first that is drawn is the simplest
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
        vars(try_).pop("_hypothesis_internal_settings_applied", None)  # for another round, with settings of its own
        chosen(try_)()


def attack(count: int, dear: bool = False) -> Callable[[Callable[..., Any]], Callable[[bool], None]]:
    """Make a test of a Hypothesis test, or of a state machine, and remember it for the hour. It is `dear` if an example
    takes a second or hangs on the moment: then the stored ones are tried in the slow tests, and what it finds is given
    as it is, not made smaller, try by try."""

    def made(try_: Callable[..., Any]) -> Callable[[bool], None]:
        one = ATTACKS[f"{try_.__module__}.{try_.__name__}"] = Attack(try_, count, dear)

        @pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "all"])
        def test(few: bool) -> None:
            one.once(few)

        test.__name__, test.__doc__, test.__module__ = try_.__name__, try_.__doc__, try_.__module__
        return test

    return made


def all_in_turn(seconds: float, seed: int) -> list[str]:
    """Each attack once, and on and on until the time is over, always with new seeds; what they found."""
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
    """An error with its notes, which hold the example; of a group, as when a second try went well, each."""
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", []), *map(told, within)])


def write_tally(path: Path, seconds: float, seed: int, found: list[str]) -> None:
    """What was tried, for the page on reliability."""
    kinds: dict[str, dict[str, int]] = {}
    for (kind, outcome), times in sorted(TRIED.items()):
        kinds.setdefault(kind, {})[outcome] = times
    said = {"seconds": round(seconds), "seed": seed, "tries": sum(TRIED.values()), "found": found, "kinds": kinds}
    path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def asked(name: str, default: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(name, default))
