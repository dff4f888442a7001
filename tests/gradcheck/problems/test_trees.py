"""Trees are taken apart by name and put together in the same containers, and numbers keep their kinds."""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from numpy_attention.gradcheck import gradcheck_vjp
from numpy_attention.gradcheck.problems.trees import (
    cotangent_of,
    in_complex_plane,
    kind_of,
    leaves,
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


@pytest.fixture
def tree(rng: np.random.Generator) -> dict[Any, Any]:
    pair = Pair(rng.standard_normal(2).astype(np.float32), None)
    return {"w": rng.standard_normal((3, 4)), "layers": [pair, (Frozen(0.5), "relu")], 7: np.arange(5), "a b": 2.0 + 1j}


def test_every_leaf_has_the_name_by_which_one_would_reach_it(tree: dict[Any, Any]) -> None:
    assert [name for name, _ in leaves(tree, "p")] == [
        "p.w", "p.layers[0].first", "p.layers[0].second", "p.layers[1][0].w", "p.layers[1][0].n", "p.layers[1][1]",
        "p[7]", "p['a b']",
    ]
    floats = ["p.w", "p.layers[0].first", "p.layers[1][0].w", "p['a b'].real", "p['a b'].imag"]
    assert names_in(tree, "p") == floats
    assert taken_apart(tree, "p").keys() >= set(floats)


def test_what_is_taken_apart_is_put_together_in_the_same_containers(tree: dict[Any, Any]) -> None:
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


def test_numbers_can_be_moved_in_place_and_come_back_as_they_came() -> None:
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


def test_the_parts_of_a_complex_number_do_not_touch_each_other() -> None:
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


def test_outputs_are_copies_and_integers_are_none_of_them(rng: np.random.Generator) -> None:
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


def test_a_map_keeps_what_it_was_given(tree: dict[Any, Any]) -> None:
    before = list(leaves(tree))
    doubled = tree_map(lambda name, leaf: leaf * 2 if kind_of(leaf) else leaf, tree)
    assert np.array_equal(doubled["w"], 2 * tree["w"])
    assert all(one is other for (_, one), (_, other) in zip(before, leaves(tree), strict=True))


def test_a_tree_that_holds_itself_is_refused_by_its_name() -> None:
    itself: list[Any] = [np.ones(2)]
    itself.append({"again": itself})
    words = re.escape("gradcheck: params[1].again[1].again[1]") + ".* holds itself, or is nested more than 100 deep"
    for use in (lambda: list(leaves(itself, "params")), lambda: tree_map(lambda name, leaf: leaf, itself, "params")):
        with pytest.raises(ValueError, match=words) as error:
            use()
        assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match=r"gradcheck: y\[1\].* holds itself"):
        gradcheck_vjp(lambda x: itself, lambda dy, x: dy, (np.ones(2),))
    with pytest.raises(ValueError, match=r"gradcheck: x\[1\].* holds itself"):
        gradcheck_vjp(lambda x: x, lambda dy, x: dy, {"x": itself})


def test_a_tree_may_be_nested_deeply(rng: np.random.Generator) -> None:
    tree: Any = rng.standard_normal(3)
    for _ in range(99):
        tree = [tree]
    deep = tree
    assert gradcheck_vjp(lambda x: x, lambda dy, x: [dy], (deep,)).ok
