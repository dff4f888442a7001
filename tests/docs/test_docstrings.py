"""All examples in docstrings run, and the docstring of every op has one."""

import doctest
import importlib
import inspect
from pathlib import Path

import numpy as np

import numpy_attention as na
from numpy_attention import ops
from tests.every import each

FUNCTIONS = [name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))]
FORWARD = [name for name in FUNCTIONS if not name.endswith("_backward")]
PACKAGE = Path(na.__file__).parent
EXAMPLES = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text("utf-8")]


def docstring(name: str) -> str:
    return inspect.getdoc(getattr(ops, name)) or ""


@each(EXAMPLES)
def test_examples_of_a_module_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"np": np, "na": na}, report=True)
    assert result.attempted
    assert not result.failed


def test_every_forward_has_an_example() -> None:
    without = [name for name in FORWARD if ">>>" not in docstring(name)]
    assert not without, without
