"""Gradients may have any of the usual forms: in order, by name, one tree."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck.trees import (
    Gradients,
    match_gradients,
)


def grads_by_name(name: str, returned: Any, arguments: dict[str, Any]) -> Gradients:
    return match_gradients(name, returned, arguments)[1]


X, W = np.ones((2, 3)), np.ones(3)
IDS = np.arange(4)
TREE = {"w": W, "layers": [{"b": X}], "n": 3}
DTREE = {"w": 2 * W, "layers": [{"b": 3 * X}]}


@pytest.mark.parametrize(("returned", "expected"), [
    ((1, 2), {"x": 1, "w": 2}),
    ([1, 2], {"x": 1, "w": 2}),
    ((1, None, 2), {"x": 1, "w": 2}),        # one for each input
    ((1, None), {"x": 1, "w": None}),        # w has none
    ((None, 1, None, 2), {"x": 1, "w": 2}),  # as for options that are off
    ({"w": 2}, {"w": 2}),
    ({"w": 2, "x": None, "ids": None}, {"x": None, "w": 2}),
])
def test_in_order_or_by_name(returned: Any, expected: dict[str, Any]) -> None:
    assert grads_by_name("f", returned, {"x": X, "ids": IDS, "w": W}) == expected


@pytest.mark.parametrize("returned", [DTREE, (DTREE,), [DTREE], {"params": DTREE}])
def test_a_single_tree_alone_or_in_a_tuple_or_by_name(returned: Any) -> None:
    found = grads_by_name("f", returned, {"params": TREE, "ids": IDS})
    assert found.keys() == {"params.w", "params.layers[0].b"}
    assert found["params.layers[0].b"] is DTREE["layers"][0]["b"]
