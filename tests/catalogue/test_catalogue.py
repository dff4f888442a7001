"""Every op, layer and model is proven by the catalogue: one line there, and all of these properties here."""

import importlib
import inspect
import io
import os
import pkgutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numpy_attention
from numpy_attention import ops
from numpy_attention.catalogue import properties, table
from numpy_attention.catalogue.entry import Entry
from numpy_attention.gradcheck.strategies import sizes_of
from numpy_attention.layers.layer import Layer
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
# NUMPY_ATTENTION_DRAWS=1000 python -m pytest -m slow tests/catalogue/test_catalogue.py
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
], ids=["luck", "off in a model", "off"])  # fmt: skip
def test_no_false_alarm_where_there_once_was_one(name: str, seed: int, sizes: dict | None) -> None:
    properties.gradients_agree_with_differences(table.CATALOGUE[name], seed, sizes)


@pytest.mark.slow
def test_every_gradient_is_proven_to_six_digits_and_most_to_nine() -> None:
    out = io.StringIO()
    assert table.run(None, stream=out) == 0
    errors = [float(line.split()[-1]) for line in out.getvalue().splitlines()[:-1]]
    assert len(errors) == len(ENTRIES)
    assert max(errors) < 1e-6
    assert sum(error < 1e-9 for error in errors) > 0.9 * len(errors)


def test_every_public_backward_is_in_the_catalogue() -> None:
    covered = {entry.covers for entry in ENTRIES}
    for module in (ops, numpy_attention):
        for name in dir(module):
            if name.endswith("_backward"):
                assert name.removesuffix("_backward") in covered, f"{name} has no entry in catalogue/ops.py"


def test_every_layer_and_model_is_in_the_catalogue() -> None:
    covered = {entry.covers for entry in ENTRIES}
    found = set()
    for package in ("layers", "models"):
        for info in pkgutil.iter_modules([f"{numpy_attention.__path__[0]}/{package}"]):
            module = importlib.import_module(f"numpy_attention.{package}.{info.name}")
            for name, thing in vars(module).items():
                if inspect.isclass(thing) and issubclass(thing, Layer) and hasattr(thing, "backward"):
                    found.add(name)  # Layer and Model, what all of them share, have no backward
    assert found, "no layer was found at all"
    assert found <= covered, f"no entry in catalogue/layers.py for {sorted(found - covered)}"


def test_names_are_unique() -> None:
    entries = [*table.OPS, *table.LAYERS, *table.MODELS]
    assert len(entries) == len(table.CATALOGUE)


def test_run_prints_a_line_for_each_entry_and_counts_failures() -> None:
    out = io.StringIO()
    assert table.run(["softmax"], seed=1, stream=out) == 0
    lines = out.getvalue().splitlines()
    assert len(lines) == 1 + len(table.named(["softmax"]))
    assert lines[-1].startswith("5 of 5 proven, 0 wrong")


def test_run_refuses_a_name_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="sotfmax"):
        table.run(["sotfmax"])
