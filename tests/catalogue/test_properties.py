"""Every op, layer and model has every property, with sizes that Hypothesis draws."""

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_attention.catalogue import properties, table
from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import two_uses_do_not_disturb_each_other
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gradcheck.strategies import sizes_of
from tests.catalogue import many_draws

ENTRIES = list(table.CATALOGUE.values())
SEEDS = st.integers(0, 2**16 - 1)
every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name.replace(" ", "-"))


def drive(entry: Entry, check: properties.Property, examples: int) -> None:
    """Draw sizes and a seed, and let Hypothesis shrink what fails."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(seed=SEEDS, sizes=sizes_of(entry.parsed, fixed=entry.fixed, at_least=entry.at_least, most=60))
    def holds(seed: int, sizes: dict) -> None:
        check(entry, seed, sizes)

    holds()


@every_entry
def test_gradients_agree_with_differences(entry: Entry) -> None:
    drive(entry, properties.gradients_agree_with_differences, 2)


@every_entry
def test_float32_gradients_agree_with_float64_differences(entry: Entry) -> None:
    drive(entry, properties.float32_gradients_agree_with_float64_differences, 1)


@every_entry
def test_dtype_is_kept(entry: Entry) -> None:
    drive(entry, properties.dtype_is_kept, 3)


@every_entry
def test_inputs_cotangent_and_cache_stay_as_they_were(entry: Entry) -> None:
    drive(entry, properties.nothing_is_changed, 3)


@every_entry
def test_gradients_belong_to_the_caller(entry: Entry) -> None:
    drive(entry, properties.gradients_are_the_callers_own, 3)


@every_entry
def test_strides_do_not_matter(entry: Entry) -> None:
    drive(entry, properties.strides_do_not_matter, 3)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.wrong], ids=lambda entry: entry.name)
def test_wrong_calls_are_refused_with_a_clear_error(entry: Entry) -> None:
    for seed in range(3):
        properties.wrong_calls_are_refused(entry, seed, None)


# A thousand draws of every entry take an hour on one core, see docs/checkers.md:
# NUMPY_ATTENTION_DRAWS=1000 python -m pytest -m slow tests/catalogue/test_properties.py
DRAWS = int(os.environ.get("NUMPY_ATTENTION_DRAWS", "200"))


@pytest.mark.slow
@every_entry
def test_no_false_alarm_in_many_draws(entry: Entry) -> None:
    for number in range(DRAWS):
        many_draws.draw(entry, number)


@every_entry
def test_no_false_alarm_in_a_few_draws_of_the_many(entry: Entry) -> None:
    for number in (1, 2):
        many_draws.draw(entry, number)


@pytest.mark.parametrize(("name", "seed", "sizes"), [
    ("SequenceClassifier: class token, dropout", 5257, {"B": 2, "T": 3, "V": 5}),  # an error bar too short by luck
    ("SequenceClassifier: mean", 0, None),  # a relu that is off, and nearly on
    ("relu", 18, None),
], ids=["luck", "off in a model", "off"])
def test_no_false_alarm_where_there_once_was_one(name: str, seed: int, sizes: dict | None) -> None:
    properties.gradients_agree_with_differences(table.CATALOGUE[name], seed, sizes)


@pytest.mark.parametrize("name", CATALOGUE)
def test_two_uses_do_not_disturb_each_other(name: str) -> None:
    two_uses_do_not_disturb_each_other(CATALOGUE[name], seed=3)


def changes_x(x: np.ndarray) -> Any:
    x *= 2
    return x.copy(), x


def doubles_dy(dy: np.ndarray, cache: Any) -> np.ndarray:
    dy *= 2
    return dy.copy()


BROKEN = {
    "nothing_is_changed": (lambda x: (x * 2, x), doubles_dy, "backward changed dy"),
    "dtype_is_kept": (lambda x: (x * np.float64(2), x), lambda dy, x: 2 * dy, "float32 in, float64 out"),
    "gradients_are_the_callers_own": (lambda x: (2 * x, x), lambda dy, x: x, "dx is a view of x"),
    "strides_do_not_matter": (
        lambda x: (x * (1 + x.flags.c_contiguous), x), lambda dy, x: 2 * dy, "other strides, other outputs"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_property_is_told_so(name: str) -> None:
    op, op_backward, words = BROKEN[name]
    entry = Entry("broken", "broken", "x: B d", op, op_backward)
    with pytest.raises(AssertionError, match=words):
        getattr(properties, name)(entry, 0)


@pytest.mark.parametrize(("dtypes", "widened"), [
    ({"y": np.float64}, True), ({"dx": np.float64}, True),
    ({"y": np.float32}, False), ({"dx": np.float32}, False), ({"dx": np.float16}, False),
])
def test_a_dtype_that_is_not_kept_is_said_to_be_widened_or_not(dtypes: dict[str, type], widened: bool) -> None:
    def op(x: np.ndarray) -> Any:
        return x.astype(dtypes.get("y", x.dtype)), x

    def op_backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy.astype(dtypes.get("dx", x.dtype))

    with pytest.raises(properties.OtherDtype) as failure:
        properties.dtype_is_kept(Entry("broken", "broken", "x: B d", op, op_backward), 0)
    assert failure.value.widened == widened


def test_a_forward_that_changes_its_inputs_is_told_so() -> None:
    entry = Entry("broken", "broken", "x: B d", changes_x, lambda dy, x: 2 * dy)
    with pytest.raises(AssertionError, match="the forward changed its inputs"):
        properties.nothing_is_changed(entry, 0)


def test_an_error_that_says_nothing_and_a_wrong_call_that_is_accepted_are_told_so() -> None:
    def mute(x: np.ndarray) -> Any:
        raise ValueError("no")

    for op, words in ((mute, "says only 'no'"), (lambda x: (x, x), "accepted")):
        entry = Entry("broken", "broken", "x: B d", op, lambda dy, x: dy, wrong="x:int64")
        with pytest.raises(AssertionError, match=words):
            properties.wrong_calls_are_refused(entry, 0)


def test_same_and_close_look_into_whatever_a_cache_is_made_of() -> None:
    a, b = ({"x": (np.array([1.0, np.nan]), [1, None]), "rng": np.random.default_rng(1)} for _ in range(2))
    assert same(a, b)
    b["rng"].random()
    assert not same(a, b)
    assert not same(np.ones(2), np.ones(2, np.float32))
    assert close(np.ones(3), np.ones(3) + 1e-12)
    assert not close(np.ones(3), np.ones(3) + 1e-10)
    assert close(np.array([-6.7e-15]), np.array([7.5e-15]))  # the bias of the keys, whose gradient is zero
    assert not close(np.array([0.0]), np.array([1e-12]))
