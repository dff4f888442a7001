"""The attack in small: no error of a kind to look for is missed, and right gradients raise no alarm.

What attack.json holds is compared with the page in every run; the attack itself is slow.
"""

import json

import numpy as np
import pytest

from tests.benchmarks.attack_checkers import DRAWS, RESULTS, of_stranger, of_trial
from tests.benchmarks.attack_page import KINDS, PAGE, alarms_of, cell, is_caught, tables
from tests.benchmarks.attacks import Trial, trials
from tests.benchmarks.attacks.shared import right_checks, shared
from tests.benchmarks.strangers import STRANGERS
from tests.every import each
from tests.generated import block

FOUND = json.loads(RESULTS.read_text("utf-8"))
TRIALS = trials()
KINDS_LOOKED_FOR = [kind for kind in KINDS if kind not in ("ordinary", "drawn")]
NUMBERS = ("one point", "ties", "float32", "relative", "ordinary", "drawn")
SCALES = sorted({scale for stranger in STRANGERS.values() for scale in stranger.scales})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_LOOKED_FOR)
def test_no_error_of_a_kind_to_look_for_is_missed(kind: str) -> None:
    found = {trial.name: of_trial(trial) for trial in TRIALS if trial.kind == kind}
    assert {name: one["said"] for name, one in found.items() if not is_caught(one) or one["innocent"]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_a_right_gradient_raises_no_alarm(scale: str) -> None:
    asked = {name: of_stranger(one, scale, 0) for name, one in STRANGERS.items() if scale in one.scales}
    assert {name: one["said"] for name, one in asked.items() if one["state"] != "right"} == {}


@each([trial for trial in TRIALS if trial.kind in NUMBERS and trial.f.__name__ in STRANGERS], lambda trial: trial.name)
def test_what_is_planted_is_an_error(trial: Trial) -> None:
    y = trial.f(*trial.inputs)
    many = y if isinstance(y, tuple) else (y,)
    dy = tuple(np.random.default_rng(0).standard_normal(one.shape).astype(one.dtype) for one in many)
    right = STRANGERS[trial.f.__name__].vjp(dy if isinstance(y, tuple) else dy[0], *trial.inputs)
    wrong = trial.wrong(dy if isinstance(y, tuple) else dy[0], *trial.inputs)
    names = list(STRANGERS[trial.f.__name__].f.__code__.co_varnames)
    differ = {name for name, a, b in zip(names, right, wrong) if not np.array_equal(a, b)}
    assert differ == set(trial.argument.split(","))


def test_there_are_errors_of_every_kind_under_names_of_their_own() -> None:
    assert {trial.kind for trial in TRIALS} == set(KINDS)
    assert len({trial.name for trial in TRIALS}) == len(TRIALS) >= 126
    assert len({trial.f.__name__ for trial in TRIALS}) >= 40
    assert len({case.name for case in shared()}) == 28
    assert len({name for name, _ in right_checks()}) == 30


def test_the_tables_of_the_page_are_those_of_the_measurements() -> None:
    text = PAGE.read_text("utf-8")
    for name, content in tables(FOUND).items():
        assert block(name, content) in text
    assert set(FOUND["errors"]) == {trial.name for trial in TRIALS}
    assert set(FOUND["right"]) == {f"{name}, {scale}" for name, s in STRANGERS.items() for scale in s.scales}
    assert all(one["draws"] == DRAWS for one in FOUND["right"].values())


def test_what_was_measured_is_what_the_checker_promises() -> None:
    for name, one in FOUND["errors"].items():
        assert is_caught(one), name
        assert not one["innocent"], name
    alarms, checks = alarms_of(FOUND["right"])
    assert alarms <= 0.002 * checks
    assert sum(cell(row["numpy_attention"]) == "**caught**" for row in FOUND["shared"].values()) >= 27
