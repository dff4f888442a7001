"""The attack in small: no error of a kind to look for is missed, and right gradients raise no alarm."""

import json
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.attack_checkers import DRAWS, RESULTS, of_stranger, of_trial
from tests.benchmarks.attack_page import KINDS, PAGE, alarms_of, cell, is_caught, tables
from tests.benchmarks.attacks import Trial, trials
from tests.benchmarks.attacks.shared import right_checks, shared
from tests.benchmarks.strangers import STRANGERS, Stranger
from tests.generated import block

FOUND = json.loads(RESULTS.read_text("utf-8"))
TRIALS = trials()
LOOKED_FOR = [trial for trial in TRIALS if trial.kind not in ("ordinary", "drawn")]
NUMBERS = [trial for trial in TRIALS if trial.kind in ("one point", "ties", "float32", "relative", "ordinary", "drawn")]
OF_STRANGERS = [trial for trial in NUMBERS if trial.f.__name__ in STRANGERS]



def by_name(trial: Trial) -> str:
    return f"{trial.kind}, {trial.name}"


def slow_if_large(trial: Trial) -> Any:
    large = max(x.size for x in trial.inputs) > 10_000
    return pytest.param(trial, id=by_name(trial), marks=pytest.mark.slow if large else ())


@pytest.mark.parametrize("trial", [slow_if_large(trial) for trial in LOOKED_FOR])
def test_no_error_of_a_kind_to_look_for_is_missed(trial: Trial) -> None:
    found = of_trial(trial)
    assert is_caught(found), f"{found['state']}: {found['said']}"
    assert not found["innocent"]


@pytest.mark.parametrize("trial", OF_STRANGERS, ids=by_name)
def test_what_is_planted_is_an_error(trial: Trial) -> None:
    y = trial.f(*trial.inputs)
    many = y if isinstance(y, tuple) else (y,)
    dy = tuple(np.random.default_rng(0).standard_normal(one.shape).astype(one.dtype) for one in many)
    right = STRANGERS[trial.f.__name__].vjp(dy if isinstance(y, tuple) else dy[0], *trial.inputs)
    wrong = trial.wrong(dy if isinstance(y, tuple) else dy[0], *trial.inputs)
    names = list(STRANGERS[trial.f.__name__].f.__code__.co_varnames)
    differ = {name for name, a, b in zip(names, right, wrong) if not np.array_equal(a, b)}
    assert differ == set(trial.argument.split(","))


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=lambda stranger: stranger.name)
def test_a_right_gradient_raises_no_alarm(stranger: Stranger, rng: np.random.Generator) -> None:
    found = of_stranger(stranger, "normal", int(rng.integers(1000)))
    assert found["state"] == "right", found["said"]


@pytest.mark.slow
@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=lambda stranger: stranger.name)
def test_nor_at_any_other_scale(stranger: Stranger) -> None:
    for scale in stranger.scales:
        found = of_stranger(stranger, scale, 0)
        assert found["state"] == "right", f"{scale}: {found['said']}"


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
