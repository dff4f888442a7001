"""Every op, layer and model has all properties, for sizes that Hypothesis draws."""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_attention import ops
from numpy_attention.catalogue import MISTAKES, properties, table
from numpy_attention.catalogue.entry import Entry
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.strategies import sizes_of
from tests.catalogue import many_draws

ENTRIES = list(table.CATALOGUE.values())
SEEDS = st.integers(0, 2**16 - 1)
every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name.replace(" ", "-"))


CORNERS = {"relu: on the corner"}  # no derivative exists there, so the complex step cannot compute it
ON_EACH_DRAW = (
    properties.dtype_is_kept, properties.nothing_is_changed, properties.gradients_share_no_memory,
    properties.strides_do_not_matter, properties.two_uses_do_not_disturb_each_other, properties.forward_matches_formula,
)
BY_DIFFERENCES = (
    properties.a_sample_of_the_gradients_agrees, properties.float32_gradients_agree_with_float64_differences,
)


def drive(entry: Entry, checks: tuple[properties.Property, ...], examples: int) -> None:
    """Draw sizes and seeds, and check all properties; Hypothesis shrinks a failure."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(seed=SEEDS, sizes=sizes_of(entry.parsed, fixed=entry.fixed, at_least=entry.at_least, most=60))
    def hold(seed: int, sizes: dict) -> None:
        for check_one in checks:
            check_one(entry, seed, sizes)

    hold()


MODELS = ("GPT", "Seq2Seq", "TextEncoder", "SequenceClassifier", "forward_with")
COMBINED = ("recomputed", "in tiles", "loss by", "low rank")  # a model with these and other options takes seconds


def is_slow(entry: Entry) -> bool:
    return entry.covers in MODELS and any(option in entry.name for option in COMBINED)


@pytest.mark.parametrize("entry", [
    pytest.param(entry, marks=pytest.mark.slow if is_slow(entry) else (), id=entry.name.replace(" ", "-"))
    for entry in ENTRIES
])
def test_every_property_holds(entry: Entry) -> None:
    agrees_with_the_complex_step_to_twelve_digits(entry)
    drive(entry, ON_EACH_DRAW, 3)
    drive(entry, BY_DIFFERENCES, 1)
    for seed in range(3):
        properties.wrong_calls_are_refused(entry, seed)


def agrees_with_the_complex_step_to_twelve_digits(entry: Entry) -> None:
    """Every element of every gradient, with sizes that all differ; the report has no notes."""
    report = check(entry.case().problem())
    assert report.error <= 1e-12  # without elements on a corner
    assert report.notes == []
    on_a_corner = entry.name in CORNERS
    assert (report.kinks > 0) == on_a_corner
    left = f"dx, with {report.kinks} elements on a corner" if on_a_corner else ""
    assert table.left_to_differences(report) == left


# Draws 0 and 9 check every element. A thousand draws of each entry take an hour on one core, see docs/checkers.md:
# NUMPY_ATTENTION_DRAWS=1000 python -m pytest -m slow tests/catalogue/test_properties.py
DRAWS = int(os.environ.get("NUMPY_ATTENTION_DRAWS", "10"))


@pytest.mark.slow
@every_entry
def test_no_false_alarm_in_many_draws(entry: Entry) -> None:
    for number in range(DRAWS):
        many_draws.draw(entry, number)


@pytest.mark.parametrize(("name", "seed", "sizes"), [
    ("SequenceClassifier: class token, dropout", 5257, {"B": 2, "T": 3, "V": 5}),  # the error estimate was too small
    ("SequenceClassifier: mean", 0, None),  # an inactive relu that is almost active
    ("relu", 18, None),
    ("linear_cross_entropy: logits of some hundred, blocks of 2", 340, None),  # p = exp(s - l) is 1 in all last bits
    ("linear_cross_entropy: logits of some hundred, blocks of 2", 2956, None),  # off by 1e-10 of the gradient
], ids=["error estimate", "relu in a model", "relu", "rounded softmax", "small error"])
def test_earlier_false_alarms_do_not_return(name: str, seed: int, sizes: dict | None) -> None:
    properties.gradients_agree_with_differences(table.CATALOGUE[name], seed, sizes)


def changes_x(x: np.ndarray) -> Any:
    x *= 2
    return x.copy(), x


def doubles_dy(dy: np.ndarray, cache: Any) -> np.ndarray:
    dy *= 2
    return dy.copy()


BROKEN = {
    "nothing_is_changed": (lambda x: (x * 2, x), doubles_dy, "backward changed dy"),
    "dtype_is_kept": (lambda x: (x * np.float64(2), x), lambda dy, x: 2 * dy, "float32 inputs give float64 outputs"),
    "gradients_share_no_memory": (lambda x: (2 * x, x), lambda dy, x: x, "dx is a view of x"),
    "strides_do_not_matter": (
        lambda x: (x * (1 + x.flags.c_contiguous), x), lambda dy, x: 2 * dy, "strided inputs change the output"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_property_fails_for_a_broken_op(name: str) -> None:
    op, op_backward, message = BROKEN[name]
    entry = Entry("broken", "broken", "x: B d", op, op_backward)
    with pytest.raises(AssertionError, match=message):
        getattr(properties, name)(entry, 0)


@pytest.mark.parametrize(("dtypes", "widened"), [
    ({"y": np.float64}, True), ({"dx": np.float64}, True),
    ({"y": np.float32}, False), ({"dx": np.float32}, False), ({"dx": np.float16}, False),
])
def test_error_for_a_changed_dtype_has_flag_widened(dtypes: dict[str, type], widened: bool) -> None:
    def op(x: np.ndarray) -> Any:
        return x.astype(dtypes.get("y", x.dtype)), x

    def op_backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy.astype(dtypes.get("dx", x.dtype))

    with pytest.raises(properties.OtherDtype) as failure:
        properties.dtype_is_kept(Entry("broken", "broken", "x: B d", op, op_backward), 0)
    assert failure.value.widened == widened


def test_reports_forward_that_changes_its_inputs() -> None:
    entry = Entry("broken", "broken", "x: B d", changes_x, lambda dy, x: 2 * dy)
    with pytest.raises(AssertionError, match="the forward changed its inputs"):
        properties.nothing_is_changed(entry, 0)


def test_reports_wrong_calls_with_poor_message_or_without_error() -> None:
    def refuse(x: np.ndarray) -> Any:
        raise ValueError("no")

    for op, message in ((refuse, "the error 'no' does not name the expected value"), (lambda x: (x, x), "no error")):
        entry = Entry("broken", "broken", "x: B d", op, lambda dy, x: dy, wrong="x:int64")
        with pytest.raises(AssertionError, match=message):
            properties.wrong_calls_are_refused(entry, 0)


def test_reports_forward_with_a_wrong_formula() -> None:
    wrong = replace(table.CATALOGUE["softmax"], op=lambda x: (ops.softmax(x)[0] * 1.001, None))
    with pytest.raises(AssertionError, match="the forward gives"):
        properties.forward_matches_formula(wrong, 0)


def test_every_op_with_a_wrong_forward_has_a_plain_formula() -> None:
    with_mistakes = {mistake.covers for mistake in MISTAKES.values() if mistake.op is not None}
    assert with_mistakes & {entry.covers for entry in ENTRIES} <= set(table.PLAIN)
