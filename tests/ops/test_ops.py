"""Rules for all of Part I: who owns an array, and the order of the public names."""

import inspect
import re
from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.catalogue.table import CATALOGUE

OPS = [entry for entry in CATALOGUE.values() if entry.covers in ops.__all__]
VIEWS = {"split_heads", "concat_heads", "dropout"}  # may return their input, or a view of it
CACHED = {"softmax", "softmax_with_sink", "tiled_attention"}  # their results are also in their caches
FORWARD = [name for name in ops.__all__ if not name.endswith("_backward")]


def arrays_in(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, (tuple, list)):
        return [array for one in tree for array in arrays_in(one)]
    return [tree] if isinstance(tree, np.ndarray) and tree.size else []


def share_memory(some: Any, others: Any) -> bool:
    return any(np.shares_memory(a, b) for a in arrays_in(some) for b in arrays_in(others))


@pytest.mark.parametrize("entry", OPS, ids=lambda entry: entry.name)
def test_results_and_gradients_share_no_memory_except_documented_cases(entry: Any) -> None:
    case = entry.case(seed=3)
    y, cache = case.op(**case.inputs, **case.options)
    dy = np.full_like(y, -0.7)
    grads = case.op_backward(dy, cache)
    assert entry.covers in VIEWS or not share_memory(y, list(case.inputs.values()))
    assert entry.covers in VIEWS or not share_memory(grads, dy)
    assert entry.covers in CACHED or entry.covers in VIEWS or not share_memory(y, cache)
    assert not share_memory(grads, cache)


def test_documented_exceptions_do_share_memory() -> None:
    x = np.ones((2, 3, 4))
    heads, cache = ops.split_heads(x, 2)
    assert share_memory(heads, x)
    assert share_memory(ops.concat_heads(x[:1])[0], x)
    assert share_memory(ops.dropout(x, 0.0, None)[0], x)
    arguments = {"softmax": (x,), "softmax_with_sink": (x, x[:, 0, 0]), "tiled_attention": (x, x, x)}
    for name in CACHED:
        y, cache = getattr(ops, name)(*arguments[name])
        assert share_memory(y, cache)


def test_public_names_are_in_the_order_of_the_chapters() -> None:
    def place(name: str) -> tuple[int, bool]:
        head = inspect.getdoc(inspect.getmodule(getattr(ops, name))) or ""
        found = re.match(r"Chapter (\d+)(, appendix)?", head)
        assert found
        return int(found[1]), bool(found[2])

    places = [place(name) for name in ops.__all__]
    assert places == sorted(places)
