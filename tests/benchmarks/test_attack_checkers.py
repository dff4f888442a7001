"""The attack: the checker misses no mistake of certain kinds and raises no alarm for right gradients.

Every run compares attack.json with the page; the tests that run the attack itself are slow.
"""

import json

import numpy as np
import pytest

from tests.benchmarks.attack_checkers import DRAWS, RESULTS, check_third_party, check_trial
from tests.benchmarks.attack_page import KINDS, PAGE, alarms_of, cell, is_caught, tables
from tests.benchmarks.attacks import Trial, trials
from tests.benchmarks.attacks.shared import right_checks, shared
from tests.benchmarks.third_party import THIRD_PARTY
from tests.every import each
from tests.generated import block

FOUND = json.loads(RESULTS.read_text("utf-8"))
TRIALS = trials()
KINDS_ALWAYS_CAUGHT = [kind for kind in KINDS if kind not in ("ordinary", "drawn")]
NUMERICAL_KINDS = ("one point", "ties", "float32", "relative", "ordinary", "drawn")
SCALES = sorted({scale for function in THIRD_PARTY.values() for scale in function.scales})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_ALWAYS_CAUGHT)
def test_no_mistake_of_these_kinds_is_missed(kind: str) -> None:
    found = {trial.name: check_trial(trial) for trial in TRIALS if trial.kind == kind}
    assert {name: one["said"] for name, one in found.items() if not is_caught(one) or one["innocent"]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_right_gradients_raise_no_alarm(scale: str) -> None:
    found = {name: check_third_party(one, scale, 0) for name, one in THIRD_PARTY.items() if scale in one.scales}
    assert {name: one["said"] for name, one in found.items() if one["state"] != "right"} == {}


NUMERICAL = [trial for trial in TRIALS if trial.kind in NUMERICAL_KINDS and trial.f.__name__ in THIRD_PARTY]


@each(NUMERICAL, lambda trial: trial.name)
def test_planted_gradients_differ_from_right_gradients(trial: Trial) -> None:
    y = trial.f(*trial.inputs)
    many = y if isinstance(y, tuple) else (y,)
    dy = tuple(np.random.default_rng(0).standard_normal(one.shape).astype(one.dtype) for one in many)
    right = THIRD_PARTY[trial.f.__name__].vjp(dy if isinstance(y, tuple) else dy[0], *trial.inputs)
    wrong = trial.wrong(dy if isinstance(y, tuple) else dy[0], *trial.inputs)
    names = list(THIRD_PARTY[trial.f.__name__].f.__code__.co_varnames)
    differ = {name for name, a, b in zip(names, right, wrong) if not np.array_equal(a, b)}
    assert differ == set(trial.argument.split(","))


def test_each_kind_has_mistakes_and_names_are_unique() -> None:
    assert {trial.kind for trial in TRIALS} == set(KINDS)
    assert len({trial.name for trial in TRIALS}) == len(TRIALS) >= 126
    assert len({trial.f.__name__ for trial in TRIALS}) >= 40
    assert len({case.name for case in shared()}) == 28
    assert len({name for name, _ in right_checks()}) == 30


def test_tables_of_the_page_match_the_measurements() -> None:
    text = PAGE.read_text("utf-8")
    for name, content in tables(FOUND).items():
        assert block(name, content) in text
    assert set(FOUND["errors"]) == {trial.name for trial in TRIALS}
    assert set(FOUND["right"]) == {f"{name}, {scale}" for name, s in THIRD_PARTY.items() for scale in s.scales}
    assert all(one["draws"] == DRAWS for one in FOUND["right"].values())


def test_measured_results_meet_the_promises_of_the_checker() -> None:
    for name, one in FOUND["errors"].items():
        assert is_caught(one), name
        assert not one["innocent"], name
    alarms, checks = alarms_of(FOUND["right"])
    assert alarms <= 0.002 * checks
    assert sum(cell(row["numpy_attention"]) == "**caught**" for row in FOUND["shared"].values()) >= 27
