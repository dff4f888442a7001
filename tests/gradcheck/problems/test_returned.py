"""Gradients in any of the forms that people return, and one line that says where a form is wrong."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.problems.returned import by_argument, gradients_of, name_gradients


class Pair(NamedTuple):
    first: Any
    second: Any


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
    assert name_gradients("f", returned, {"x": X, "ids": IDS, "w": W}) == expected


def test_one_for_each_input_even_where_that_is_as_many_none() -> None:
    found = by_argument("f", (1, None, None), {"x": X, "ids": IDS, "w": W})
    assert found == {"x": 1, "ids": None, "w": None}


@pytest.mark.parametrize("returned", [DTREE, (DTREE,), [DTREE], {"params": DTREE}])
def test_a_single_tree_comes_alone_in_a_tuple_or_by_name(returned: Any) -> None:
    found = name_gradients("f", returned, {"params": TREE, "ids": IDS})
    assert found.keys() == {"params.w", "params.layers[0].b"}
    assert found["params.layers[0].b"] is DTREE["layers"][0]["b"]


def test_a_dict_that_holds_a_key_called_as_the_argument() -> None:
    found = name_gradients("f", {"params": {"w": W}}, {"params": {"params": {"w": X}}})
    assert found == {"params.params.w": W}


def test_lists_and_named_tuples_of_gradients() -> None:
    assert name_gradients("f", [1.0], {"layers": [W]}) == {"layers[0]": 1.0}
    assert name_gradients("f", ((1.0, 2.0),), {"pair": Pair(W, X)}) == {"pair.first": 1.0, "pair.second": 2.0}
    assert name_gradients("f", Pair(1.0, 2.0), {"pair": Pair(W, X)}) == {"pair.first": 1.0, "pair.second": 2.0}
    assert name_gradients("f", {"first": 1.0}, {"pair": Pair(W, X)}) == {"pair.first": 1.0}


def test_none_stands_for_a_branch_and_a_missing_key_for_nothing() -> None:
    assert gradients_of(TREE, {"layers": None, "w": W}, "p") == {"p.w": W, "p.layers[0].b": None}
    assert gradients_of(TREE, {"w": W}, "p") == {"p.w": W}
    assert gradients_of(TREE, None, "p") == {"p.w": None, "p.layers[0].b": None}


def test_of_integers_nothing_is_asked() -> None:
    assert gradients_of({"w": W, "more": {"n": 3}}, {"w": W, "more": 0}, "p") == {"p.w": W}


def test_the_gradient_of_a_complex_array_is_complex_or_real() -> None:
    z = np.array([1 + 2j, 3j])
    found = gradients_of({"z": z}, {"z": z.conj()}, "p")
    assert found["p.z.imag"].tolist() == [-2.0, -3.0]
    assert gradients_of(z, np.ones(2), "z")["z.imag"].tolist() == [0.0, 0.0]
    assert gradients_of(z, None, "z") == {"z.real": None, "z.imag": None}


@pytest.mark.parametrize(("returned", "words"), [
    ((1, 2, 3), "backward returned 3 gradients for 1 arrays of floats (params); return one each, in argument order"),
    ({"dparams": 1}, "backward returned a gradient called 'dparams'; gradients go by the arguments: params"),
    ({"params": DTREE | {"db": W}},
     "dparams holds dparams.db, but params holds only params.w, params.layers, params.n"),
    ({"params": {"layers": []}}, "dparams.layers has 0 entries, params.layers has 1"),
    ({"params": {"layers": [X]}},
     "dparams.layers[0] is an array of shape (2, 3), where params.layers[0] is a dict of 1"),
    ({"params": {"w": [W]}}, "dparams.w is a list of 1, where params.w is an array of shape (3,)"),
    (W, "dparams is an array of shape (3,), where params is a dict of 3"),
])
def test_a_wrong_form_is_said_in_one_line_with_its_place(returned: Any, words: str) -> None:
    with pytest.raises(GradientError, match=f"^gradcheck f: {re.escape(words)}$"):
        name_gradients("f", returned, {"params": TREE})
