"""Trees are taken apart by name and put together in the same containers, and numbers keep their kinds.

Gradients may have any of the usual forms; for a wrong form, one line gives its place.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.trees import (
    Gradients,
    cotangent_of,
    gradients_of,
    in_complex_plane,
    kind_of,
    leaves,
    match_gradients,
    names_in,
    outputs_of,
    put_together,
    taken_apart,
    tree_map,
)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Frozen:
    w: Any
    n: int = 3


def grads_by_name(name: str, returned: Any, arguments: dict[str, Any]) -> Gradients:
    return match_gradients(name, returned, arguments)[1]


@pytest.fixture
def tree(rng: np.random.Generator) -> dict[Any, Any]:
    pair = Pair(rng.standard_normal(2).astype(np.float32), None)
    return {"w": rng.standard_normal((3, 4)), "layers": [pair, (Frozen(0.5), "relu")], 7: np.arange(5), "a b": 2.0 + 1j}


def test_the_name_of_a_leaf_is_the_expression_for_it(tree: dict[Any, Any]) -> None:
    assert [name for name, _ in leaves(tree, "p")] == [
        "p.w", "p.layers[0].first", "p.layers[0].second", "p.layers[1][0].w", "p.layers[1][0].n", "p.layers[1][1]",
        "p[7]", "p['a b']",
    ]
    floats = ["p.w", "p.layers[0].first", "p.layers[1][0].w", "p['a b'].real", "p['a b'].imag"]
    assert names_in(tree, "p") == floats
    assert taken_apart(tree, "p").keys() >= set(floats)


def test_a_tree_is_put_together_in_the_same_containers(tree: dict[Any, Any]) -> None:
    again = put_together(tree, "p", taken_apart(tree, "p"))
    kinds: list[type] = []
    for (name, leaf), (other, same) in zip(leaves(tree), leaves(again), strict=True):
        assert name == other
        assert type(leaf) is type(same)
        assert np.array_equal(leaf, same)
        kinds.append(type(leaf))
    assert {np.ndarray, type(None), float, int, str, complex} == set(kinds)
    assert again is not tree
    assert again["w"] is tree["w"]
    assert type(again["layers"][0]) is Pair
    assert type(again["layers"][1][0]) is Frozen
    assert type(put_together(OrderedDict(b=1.0), "p", {"p.b": np.array(2.0)})) is OrderedDict


def test_numbers_become_arrays_and_return_with_their_types() -> None:
    given = (0.5, np.float64(0.25), np.float32(2.0), 1 + 2j, np.complex64(3j), np.array(4.0), True, 3)
    arrays = taken_apart(given, "x")
    for name in names_in(given, "x"):
        assert type(arrays[name]) is np.ndarray
        arrays[name] += 1
    moved = put_together(given, "x", arrays)
    assert [type(one) for one in moved] == [float, np.float64, np.float32, complex, np.complex64, np.ndarray, bool, int]
    assert moved[:5] == (1.5, 1.25, 3.0, 2 + 3j, 1 + 4j)
    assert given[5] == 5.0, "an array is moved itself, as any other"


def test_a_float_in_the_complex_plane_can_still_be_compared() -> None:
    (moved,) = put_together((0.5,), "x", {"x[0]": np.array(0.5 + 1e-30j)})
    assert moved.imag == 1e-30
    assert 0 < moved < 1


def test_a_generator_draws_the_same_in_every_call(rng: np.random.Generator) -> None:
    given = {"rng": rng}
    draws = [put_together(given, "x", taken_apart(given, "x"))["rng"].random() for _ in range(2)]
    assert draws[0] == draws[1]


def test_infinite_parts_of_a_complex_number_stay_separate() -> None:
    z = in_complex_plane(np.array([1.0, -0.0]), np.array([np.inf, -0.0]))
    assert z.real.tolist() == [1.0, 0.0]
    assert np.signbit(z.imag[1])
    assert np.isinf(z.imag[0])
    assert in_complex_plane(np.float32(1), np.float32(2)).dtype == np.complex64


@pytest.mark.parametrize(("leaf", "kind"), [
    (0.5, "f"), (np.float32(1), "f"), (np.ones(2), "f"), (1j, "c"), (np.ones(2, np.complex64), "c"),
    (True, ""), (3, ""), (np.int64(3), ""), (np.arange(3), ""), (np.ones(2, bool), ""), (None, ""), ("x", ""),
])
def test_only_floats_and_complex_numbers_are_differentiated(leaf: Any, kind: str) -> None:
    assert kind_of(leaf) == kind


def test_outputs_are_copies_of_arrays_of_floats(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3))
    y = {"values": x[:1], "ids": np.arange(2), "z": x + 1j, "loss": 0.5}
    values, real, imag, loss = outputs_of(y)
    assert not np.shares_memory(values, x)
    assert np.array_equal(real, x)
    assert imag.shape == x.shape
    assert loss == 0.5
    assert [one.dtype.kind for one in outputs_of(y, split=False)] == ["f", "c", "f"]


def test_dy_has_the_form_of_y(rng: np.random.Generator) -> None:
    y = Pair([rng.standard_normal(3), np.arange(2), None], {"z": rng.standard_normal(4) * 1j})
    dy = tuple(rng.standard_normal(one.shape) for one in outputs_of(y))
    form = cotangent_of(y, dy)
    assert type(form) is Pair
    assert form.first[0] is dy[0]
    assert form.first[1:] == [None, None]
    assert np.array_equal(form.second["z"], dy[1] + 1j * dy[2])
    assert cotangent_of(y, dy[:2], split=False).second["z"] is dy[1]


def test_tree_map_does_not_change_its_argument(tree: dict[Any, Any]) -> None:
    before = list(leaves(tree))
    doubled = tree_map(lambda name, leaf: leaf * 2 if kind_of(leaf) else leaf, tree)
    assert np.array_equal(doubled["w"], 2 * tree["w"])
    assert all(one is other for (_, one), (_, other) in zip(before, leaves(tree), strict=True))


def test_a_tree_that_contains_itself_is_refused() -> None:
    itself: list[Any] = [np.ones(2)]
    itself.append({"again": itself})
    text = re.escape("gradcheck: params[1].again[1].again[1]") + ".* contains itself, or is more than 100 levels deep"
    for use in (lambda: list(leaves(itself, "params")), lambda: tree_map(lambda name, leaf: leaf, itself, "params")):
        with pytest.raises(ValueError, match=text) as error:
            use()
        assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match=r"gradcheck: y\[1\].* contains itself"):
        gradcheck_vjp(lambda x: itself, lambda dy, x: dy, (np.ones(2),))
    with pytest.raises(ValueError, match=r"gradcheck: x\[1\].* contains itself"):
        gradcheck_vjp(lambda x: x, lambda dy, x: dy, {"x": itself})


def test_a_tree_may_be_nested_deeply(rng: np.random.Generator) -> None:
    tree: Any = rng.standard_normal(3)
    for _ in range(99):
        tree = [tree]
    deep = tree
    assert gradcheck_vjp(lambda x: x, lambda dy, x: [dy], (deep,)).ok


class TwoGradients(NamedTuple):
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
    assert grads_by_name("f", returned, {"x": X, "ids": IDS, "w": W}) == expected


def test_one_gradient_for_each_input_including_none() -> None:
    found, _ = match_gradients("f", (1, None, None), {"x": X, "ids": IDS, "w": W})
    assert found == {"x": 1, "ids": None, "w": None}


@pytest.mark.parametrize("returned", [DTREE, (DTREE,), [DTREE], {"params": DTREE}])
def test_a_single_tree_alone_or_in_a_tuple_or_by_name(returned: Any) -> None:
    found = grads_by_name("f", returned, {"params": TREE, "ids": IDS})
    assert found.keys() == {"params.w", "params.layers[0].b"}
    assert found["params.layers[0].b"] is DTREE["layers"][0]["b"]


def test_a_dict_with_a_key_of_the_name_of_the_argument() -> None:
    found = grads_by_name("f", {"params": {"w": W}}, {"params": {"params": {"w": X}}})
    assert found == {"params.params.w": W}


def test_lists_and_named_tuples_of_gradients() -> None:
    assert grads_by_name("f", [1.0], {"layers": [W]}) == {"layers[0]": 1.0}
    assert grads_by_name("f", ((1.0, 2.0),), {"pair": TwoGradients(W, X)}) == {"pair.first": 1.0, "pair.second": 2.0}
    found = grads_by_name("f", TwoGradients(1.0, 2.0), {"pair": TwoGradients(W, X)})
    assert found == {"pair.first": 1.0, "pair.second": 2.0}
    assert grads_by_name("f", {"first": 1.0}, {"pair": TwoGradients(W, X)}) == {"pair.first": 1.0}


def test_none_means_no_gradient_for_a_branch() -> None:
    assert gradients_of(TREE, {"layers": None, "w": W}, "p") == {"p.w": W, "p.layers[0].b": None}
    assert gradients_of(TREE, {"w": W}, "p") == {"p.w": W}
    assert gradients_of(TREE, None, "p") == {"p.w": None, "p.layers[0].b": None}


def test_integers_need_no_gradient() -> None:
    assert gradients_of({"w": W, "more": {"n": 3}}, {"w": W, "more": 0}, "p") == {"p.w": W}


def test_the_gradient_of_a_complex_array_is_complex_or_real() -> None:
    z = np.array([1 + 2j, 3j])
    found = gradients_of({"z": z}, {"z": z.conj()}, "p")
    assert found["p.z.imag"].tolist() == [-2.0, -3.0]
    assert gradients_of(z, np.ones(2), "z")["z.imag"].tolist() == [0.0, 0.0]
    assert gradients_of(z, None, "z") == {"z.real": None, "z.imag": None}


@pytest.mark.parametrize(("returned", "text"), [
    ((1, 2, 3),
     "backward returned 3 gradients for 1 arrays of floats (params); return one for each, in argument order"),
    ({"dparams": 1}, "backward returned a gradient called 'dparams'; the names must be names of arguments: params"),
    ({"params": DTREE | {"db": W}},
     "dparams holds dparams.db, but params holds only params.w, params.layers, params.n"),
    ({"params": {"layers": []}}, "dparams.layers has 0 entries, but params.layers has 1"),
    ({"params": {"layers": [X]}},
     "dparams.layers[0] is an array of shape (2, 3), but params.layers[0] is a dict of 1"),
    ({"params": {"w": [W]}}, "dparams.w is a list of 1, but params.w is an array of shape (3,)"),
    (W, "dparams is an array of shape (3,), but params is a dict of 3"),
])
def test_a_wrong_form_is_reported_in_one_line_with_its_place(returned: Any, text: str) -> None:
    with pytest.raises(GradientError, match=f"^gradcheck f: {re.escape(text)}$"):
        grads_by_name("f", returned, {"params": TREE})
