"""One table of every op, layer and model: nothing public is missing, and `run` checks what it lists."""

import importlib
import inspect
import io
import pkgutil
import re
from dataclasses import replace

import pytest

import numpy_attention
from numpy_attention import inside, ops
from numpy_attention.catalogue import table
from numpy_attention.gradcheck.check import check
from numpy_attention.layers.layer import Layer

ENTRIES = list(table.CATALOGUE.values())
CORNERS = {"relu: on the corner"}  # no derivative there, so nothing for a complex step to find


@pytest.mark.parametrize("name", sorted(set(table.CATALOGUE) - CORNERS))
def test_every_gradient_agrees_with_the_complex_step_to_twelve_digits(name: str) -> None:
    report = check(table.CATALOGUE[name].case().problem())
    assert table.left_to_differences(report) == ""
    assert report.error <= 1e-12
    assert report.kinks == 0


@pytest.mark.parametrize("name", sorted(CORNERS))
def test_on_a_corner_differences_judge(name: str) -> None:
    report = check(table.CATALOGUE[name].case().problem())
    assert table.left_to_differences(report) == f"dx, with {report.kinks} elements on a corner"
    assert report.kinks > 0
    assert report.error <= 1e-12  # beside the corner


@pytest.mark.slow
def test_run_checks_all_and_prints_median_and_largest_error() -> None:
    out = io.StringIO()
    assert table.run(None, stream=out) == 0
    *lines, exact, left, last = out.getvalue().splitlines()
    assert len(lines) == len(ENTRIES)
    errors = [float(number) for line in lines for number in re.findall(r" (\d\.\de[+-]\d\d)\b", line)]
    assert len(errors) == len(ENTRIES)
    assert max(errors) < 1e-12
    said = re.fullmatch(r"against the complex step: median (\S+), largest (\S+) \(.+\)", exact)
    assert said is not None
    assert float(said[1]) < 1e-15
    assert float(said[2]) == max(errors)
    assert left == "by differences: " + "; ".join(CORNERS)
    assert last.startswith(f"{len(ENTRIES)} checked, 0 wrong")


def test_every_public_backward_is_in_the_catalogue() -> None:
    covered = {entry.covers for entry in ENTRIES}
    for module in (ops, numpy_attention, inside):
        for name in dir(module):
            if name.endswith("_backward"):
                assert name.removesuffix("_backward") in covered, f"{name} has no entry in the catalogue"
        assert not hasattr(module, "forward_with") or "forward_with" in covered


def test_every_layer_and_model_is_in_the_catalogue() -> None:
    covered = {entry.covers for entry in ENTRIES}
    found = set()
    for package in ("layers", "models", "pretrained"):
        for info in pkgutil.iter_modules([f"{numpy_attention.__path__[0]}/{package}"]):
            module = importlib.import_module(f"numpy_attention.{package}.{info.name}")
            for name, thing in vars(module).items():
                if inspect.isclass(thing) and issubclass(thing, Layer) and not thing.__subclasses__():
                    found.add(name)  # Layer, Model and Block, what several share, are checked by those
    assert found, "no layer was found at all"
    assert found <= covered, f"no entry in catalogue/layers.py for {sorted(found - covered)}"


def test_names_are_unique() -> None:
    entries = [*table.OPS, *table.LAYERS, *table.MODELS, *table.INSIDE]
    assert len(entries) == len(table.CATALOGUE)


def test_run_prints_a_line_for_each_entry_and_counts_failures() -> None:
    out = io.StringIO()
    assert table.run(["softmax"], seed=1, stream=out) == 0
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 + len(table.named(["softmax"]))
    assert lines[-2].startswith("against the complex step: median ")
    assert lines[-1].startswith("5 checked, 0 wrong")


def test_run_names_what_was_left_to_differences_and_why() -> None:
    out = io.StringIO()
    assert table.run(["relu"], stream=out) == 0
    relu, corner, exact, left, _ = out.getvalue().splitlines()
    assert re.fullmatch(r"relu +\S+", relu)
    assert re.search(r"\S+  by differences: dx, with \d+ elements on a corner$", corner)
    assert exact.endswith("(relu)")
    assert left == "by differences: relu: on the corner"


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
    assert "5 checked, 1 wrong" in out.getvalue()
