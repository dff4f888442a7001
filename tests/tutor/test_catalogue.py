"""The catalogue contains every public op, layer and model, and `run` checks its entries."""

import importlib
import inspect
import io
import pkgutil
import re
from dataclasses import replace

import pytest

import numpy_attention
from numpy_attention import inside, ops
from numpy_attention.layers.c13_layer import Layer
from numpy_attention.tutor import catalogue, checks
from numpy_attention.tutor.page import FOLDER

ENTRIES = list(catalogue.CATALOGUE.values())


def test_every_public_backward_is_in_the_catalogue() -> None:
    covered = {entry.covers for entry in ENTRIES} | {"fake_quantize"}  # wrong on purpose: its surrogate is checked
    for module in (ops, numpy_attention, inside):
        for name in dir(module):
            if name.endswith("_backward"):
                assert name.removesuffix("_backward") in covered, f"{name} has no entry in the catalogue"
        assert not hasattr(module, "forward_with") or "forward_with" in covered


def test_every_layer_and_model_is_in_the_catalogue() -> None:
    covered = {entry.covers for entry in ENTRIES}
    found = set()
    for package in ("layers", "models", "pretrained", "recent", "beyond"):
        for info in pkgutil.iter_modules([f"{numpy_attention.__path__[0]}/{package}"]):
            module = importlib.import_module(f"numpy_attention.{package}.{info.name}")
            for name, thing in vars(module).items():
                if inspect.isclass(thing) and issubclass(thing, Layer) and not thing.__subclasses__():
                    found.add(name)  # base classes such as Layer, Model and Block are checked by their subclasses
    assert found, "no layer was found"
    assert found <= covered, f"no case on a page for {sorted(found - covered)}"


def test_names_are_unique() -> None:
    for found in (
        [row["case"] for page in catalogue.PAGES for row in page.rows],
        [one.name for page in catalogue.PAGES for one in page.mistakes],
        [one.name for page in catalogue.PAGES for one in page.exercises],
    ):
        assert len(set(found)) == len(found)


def test_all_pages_are_in_the_order_of_the_chapters() -> None:
    assert {page.name for page in catalogue.PAGES} == {file.stem for file in FOLDER.glob("*.md")} - {"README"}
    chapters = [page.chapter for page in catalogue.PAGES]
    assert chapters == sorted(chapters)
    for file in FOLDER.glob("[!_]*.py"):
        module = catalogue.module_of_page(file.stem)
        assert file.with_suffix(".md").exists(), f"{file.name} has no page"
        near = {name for name in vars(module) if name.isupper() and name.rstrip("S") in ("TRIAL", "QUESTION")}
        assert near <= {"TRIALS", "QUESTIONS"}, f"{file.name}: a table with a wrong name is ignored"


@pytest.mark.parametrize("covers", catalogue.TRIALS)
def test_right_answer_passes_its_trial(covers: str) -> None:
    right = [catalogue.names_of(page.name).get(covers) for page in catalogue.PAGES]
    for seed in range(3):
        catalogue.TRIALS[covers](next(filter(None, right)), seed)


def test_run_prints_a_line_for_each_entry_and_counts_failures() -> None:
    out = io.StringIO()
    assert checks.run(["softmax"], seed=1, stream=out) == 0
    *lines, exact, last = out.getvalue().splitlines()
    assert len(lines) == len(checks.select_entries(["softmax"]))
    errors = [float(number) for line in lines for number in re.findall(r" (\d\.\de[+-]\d\d)\b", line)]
    assert len(errors) == len(lines)
    summary = re.fullmatch(r"against the complex step: median (\S+), largest (\S+) \(.+\)", exact)
    assert summary is not None
    assert float(summary[1]) == sorted(errors)[len(errors) // 2] < 1e-15
    assert float(summary[2]) == max(errors) < 1e-10
    assert last.startswith("5 checked, 0 wrong")


def test_run_counts_failures_and_prints_their_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalogue.CATALOGUE["softmax"]
    wrong = replace(entry, op_backward=lambda dy, cache: -ops.softmax_backward(dy, cache))
    monkeypatch.setitem(catalogue.CATALOGUE, "softmax", wrong)
    out = io.StringIO()
    assert checks.run(["softmax"], stream=out) == 1
    assert "WRONG" in out.getvalue()
    assert "the sign is wrong" in out.getvalue()
    assert "5 checked, 1 wrong" in out.getvalue()
