"""Trees are taken apart by name and put together in the same containers, and numbers keep their kinds.

Gradients may have any of the usual forms; for a wrong form, one line gives its place.
"""

import re
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.trees import (
    Gradients,
    gradients_of,
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


def test_none_means_no_gradient_for_a_branch() -> None:
    assert gradients_of(TREE, {"layers": None, "w": W}, "p") == {"p.w": W, "p.layers[0].b": None}
    assert gradients_of(TREE, {"w": W}, "p") == {"p.w": W, "p.layers[0].b": None}
    assert gradients_of(TREE, None, "p") == {"p.w": None, "p.layers[0].b": None}


def test_the_gradient_of_a_complex_array_is_complex_or_real() -> None:
    z = np.array([1 + 2j, 3j])
    found = gradients_of({"z": z}, {"z": z.conj()}, "p")
    assert found["p.z.imag"].tolist() == [-2.0, -3.0]
    assert gradients_of(z, np.ones(2), "z")["z.imag"].tolist() == [0.0, 0.0]
    assert gradients_of(z, None, "z") == {"z.real": None, "z.imag": None}


ONLY = "but params holds only params.w, params.layers[0].b, params.n"


@pytest.mark.parametrize(("returned", "text"), [
    ((1, 2, 3),
     "backward returned 3 gradients for 1 arrays of floats (params); return one for each, in argument order"),
    ({"dparams": 1}, "backward returned a gradient called 'dparams'; the names must be names of arguments: params"),
    ({"params": DTREE | {"db": W}}, f"backward returned dparams.db, {ONLY}"),
    ({"params": {"layers": [X]}}, f"backward returned dparams.layers[0], {ONLY}"),
    ({"params": {"w": [W]}}, f"backward returned dparams.w[0], {ONLY}"),
    (W, f"backward returned dparams, {ONLY}"),
])
def test_a_wrong_form_is_reported_in_one_line_with_its_place(returned: Any, text: str) -> None:
    with pytest.raises(GradientError, match=f"^gradcheck f: {re.escape(text)}$"):
        grads_by_name("f", returned, {"params": TREE})
