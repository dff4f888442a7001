"""The docstring of every public function gives its formula, shapes, errors and source, and its examples run."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import numpy as np

import numpy_attention as na
from numpy_attention import ops
from tests.every import each

SECTION = re.compile(r"^(Formula|Shapes|Units|Raises|Source): *(.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
FUNCTIONS = [name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))]
FORWARD = [name for name in FUNCTIONS if not name.endswith("_backward")]
BACKWARD = [name for name in FUNCTIONS if name.endswith("_backward")]
PARTS = ("ops", "layers", "models", "training", "gradcheck", "plots")
PACKAGE = Path(na.__file__).parent
EXAMPLES = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text("utf-8")]


def docstring(name: str) -> str:
    return inspect.getdoc(getattr(ops, name)) or ""


@each(FORWARD)
def test_forward_docstring_has_its_parts_in_order(name: str) -> None:
    parts = re.findall(r"^(Formula|Shapes|Units|Raises|Source): *\S", docstring(name), re.MULTILINE)
    assert [part for part in parts if part != "Units"] == ["Formula", "Shapes", "Raises", "Source"]
    assert parts == sorted(parts, key=["Formula", "Shapes", "Units", "Raises", "Source"].index)


@each(FORWARD)
def test_raises_names_an_exception_and_source_names_a_year_or_convention(name: str) -> None:
    sections = dict(SECTION.findall(docstring(name)))
    assert re.search(r"\b(ValueError|TypeError)\b", sections["Raises"])
    assert re.search(r"\b(19|20)\d\d\b|convention", sections["Source"])


@each(BACKWARD)
def test_backward_docstring_names_its_forward_and_its_shapes(name: str) -> None:
    text = docstring(name)
    assert re.match(rf"Gradients? of `{name.removesuffix('_backward')}`", text), text.split("\n")[0]
    assert re.search(r"^Shapes: *dy|^Shapes: *dloss", text, re.MULTILINE)
    first = text.split("\n\n")[0]
    assert "=" in first or "derivation" in first or "turn dy back" in first, f"no formula: {first}"


def functions_of(part: str) -> list[str]:
    module = importlib.import_module(f"numpy_attention.{part}")
    return [name for name in module.__all__ if inspect.isfunction(getattr(module, name))]


@each(PARTS)
def test_example_lines_have_at_most_99_columns(part: str) -> None:
    module = importlib.import_module(f"numpy_attention.{part}")
    for name in module.__all__:
        for line in (inspect.getdoc(getattr(module, name)) or "").splitlines():
            assert len(line) <= 99 or not line.lstrip().startswith((">>>", "...")), f"{name}: {line}"


OTHERS = [(part, name) for part in ("training", "gradcheck", "plots") for name in functions_of(part)]


@each(OTHERS)
def test_functions_outside_ops_document_formula_arguments_and_errors(of: tuple[str, str]) -> None:
    part, name = of
    function = getattr(importlib.import_module(f"numpy_attention.{part}"), name)
    text = inspect.getdoc(function) or ""
    sections = dict(SECTION.findall(text))
    if part == "plots":
        assert sections.keys() & {"Shapes", "Units"} or "`grads`" in text or "figure" in text, f"what does {name} take?"
    else:
        head = inspect.getdoc(inspect.getmodule(function)) or ""  # a formula derived there is not repeated
        assert re.search(r"=|<-", sections.get("Formula", head))
    if "raise " in inspect.getsource(function) or part != "training":
        assert re.search(r"\b\w+Error\b", sections["Raises"])


@each(["layers", "models"])
def test_layer_docstring_gives_input_and_output_shapes(part: str) -> None:
    module = importlib.import_module(f"numpy_attention.{part}")
    for name in module.__all__:
        thing = getattr(module, name)
        if "forward" in vars(thing):
            assert re.search(r"^Shapes: .*->", inspect.getdoc(thing) or "", re.MULTILINE | re.DOTALL), name


@each(PARTS)
def test_every_public_docstring_begins_with_a_sentence_or_a_formula(part: str) -> None:
    module = importlib.import_module(f"numpy_attention.{part}")
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            own = thing.__doc__ or ""
            first = inspect.cleandoc(own).split("\n\n")[0]
            assert first, f"{part}.{name} has no docstring"
            assert first[0].isupper() or " = " in first, f"{part}.{name}: no sentence, no formula: {first}"
            assert first.endswith((".", ":")), f"{part}.{name}: {first}"


@each(EXAMPLES)
def test_examples_of_a_module_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"np": np, "na": na}, report=True)
    assert result.attempted
    assert not result.failed


def test_every_forward_has_an_example() -> None:
    without = [name for name in FORWARD if ">>>" not in docstring(name)]
    assert not without, without
