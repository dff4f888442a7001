"""One table of every op, layer and model: nothing public is missing, and `run` proves what it lists."""

import importlib
import inspect
import io
import pkgutil
from dataclasses import replace

import pytest

import numpy_attention
from numpy_attention import ops
from numpy_attention.catalogue import table
from numpy_attention.layers.layer import Layer

ENTRIES = list(table.CATALOGUE.values())


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
    for package in ("layers", "models", "pretrained"):
        for info in pkgutil.iter_modules([f"{numpy_attention.__path__[0]}/{package}"]):
            module = importlib.import_module(f"numpy_attention.{package}.{info.name}")
            for name, thing in vars(module).items():
                if inspect.isclass(thing) and issubclass(thing, Layer) and not thing.__subclasses__():
                    found.add(name)  # Layer, Model and Block, what several share, are proven by those
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


def test_run_counts_what_is_wrong_and_prints_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = table.CATALOGUE["softmax"]
    wrong = replace(entry, op_backward=lambda dy, cache: -ops.softmax_backward(dy, cache))
    monkeypatch.setitem(table.CATALOGUE, "softmax", wrong)
    out = io.StringIO()
    assert table.run(["softmax"], stream=out) == 1
    assert "WRONG" in out.getvalue()
    assert "the sign is wrong" in out.getvalue()
    assert "4 of 5 proven, 1 wrong" in out.getvalue()
