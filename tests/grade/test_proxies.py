"""A function, a layer and a cache of another process have the manners of those that are here."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_attention.grade.proxies import Cache, call

from numpy_attention.catalogue.compare import same
from numpy_attention.catalogue.exercise import peak_memory
from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.gradcheck.problem import arrays_of, with_parameters
from numpy_attention.grade.process import Ended, Process

SOFTMAX = """
def softmax(x, axis=-1):
    return 2 * x, [x]
def softmax_backward(dy, cache):
    if dy.ndim == 1:
        cache[0] -= 1
    if dy.ndim == 2:
        dy.shape = (-1,)
    if dy.ndim == 3:
        (dy + 1).sum()
    return 2 * dy
"""
LOW_RANK = """
from numpy_attention.layers import Layer
class LowRank(Layer):
    frozen = ("w",)
    def __init__(self, w, rank, alpha, rng):
        self.w, self.a = w, rng.standard_normal((3, rank))
    def forward(self, x):
        return x @ self.w + self.a.sum(), x
    def backward(self, dy, cache):
        self.a *= 2
        return dy @ self.w.T, {"a": self.a + dy.sum()}
"""


def process(tmp_path: Path, name: str, text: str) -> Iterator[Any]:
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    with Process(file, EXERCISES[name], 60.0) as module:
        assert "failed" not in module.load()
        yield module


@pytest.fixture
def softmax(tmp_path: Path) -> Iterator[Any]:
    yield from process(tmp_path, "softmax", SOFTMAX)


@pytest.fixture
def low_rank(tmp_path: Path) -> Iterator[Any]:
    yield from process(tmp_path, "low_rank", LOW_RANK)


def test_a_function_gives_what_it_gives_there_and_changes_our_arrays(softmax: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal(5)
    before, dy = x.copy(), rng.standard_normal(5)
    y, cache = softmax.softmax(x, axis=0)
    assert np.array_equal(y, 2 * x)
    assert softmax.softmax.__name__ == "softmax"
    kept = copy.deepcopy(cache)
    assert same(kept, cache)
    assert np.array_equal(softmax.softmax_backward(dy, cache), 2 * dy)
    assert np.array_equal(x, before - 1)  # which the backward reached through its cache
    assert not same(kept, cache)
    assert not same(cache, None)


def test_an_array_of_ours_that_is_given_another_shape_is_noticed(softmax: Any, rng: np.random.Generator) -> None:
    dy = rng.standard_normal((2, 3))
    _, cache = softmax.softmax(dy)
    with pytest.raises(AssertionError, match=r"gave an array of its caller's, \(2, 3\), another shape"):
        softmax.softmax_backward(dy, cache)


def test_memory_is_measured_there(softmax: Any, rng: np.random.Generator) -> None:
    dy = rng.standard_normal((10, 20, 500))
    _, cache = softmax.softmax(dy)
    assert dy.nbytes <= peak_memory(softmax.softmax_backward, dy, cache) < 4 * dy.nbytes


def test_a_cache_that_nobody_holds_is_let_go_there(softmax: Any, rng: np.random.Generator) -> None:
    _, cache = softmax.softmax(rng.standard_normal(3))
    other = Cache(softmax, cache.number, [])  # a second name for it: the first to go takes it along
    del cache
    with pytest.raises(ValueError, match="object in a message is none"):
        softmax.softmax_backward(np.ones((1, 1, 1)), other)


def test_a_layer_computes_with_our_arrays(low_rank: Any, rng: np.random.Generator) -> None:
    w, x, dy = rng.standard_normal((3, 2)), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    draws = np.random.default_rng(8)
    layer = low_rank.LowRank(w, 5, 1.0, draws)
    again = np.random.default_rng(8)
    assert type(layer).__name__ == "LowRank"
    assert list(layer.parameters()) == ["a"]
    assert np.array_equal(layer.parameters()["a"], again.standard_normal((3, 5)))
    assert draws.random() == again.random()  # our generator has moved on as theirs has
    held = arrays_of(layer)
    assert list(held) == ["a", "w"]
    held["a"][...] = rng.standard_normal((3, 5))
    y, cache = layer.forward(x)
    assert np.allclose(y, x @ w + held["a"].sum())
    moved = with_parameters(layer, {"a": held["a"] + 1, "w": held["w"]})
    assert np.allclose(moved.forward(x)[0], y + 15)
    before = held["a"].copy()
    dx, grads = layer.backward(dy, cache)
    assert np.allclose(dx, dy @ w.T)
    assert np.array_equal(held["a"], 2 * before)
    assert np.allclose(grads["a"], 2 * before + dy.sum())


class Liar:
    """Replies with whatever it was given."""

    def __init__(self, reply: dict[str, Any], arrays: list[np.ndarray]) -> None:
        self.reply, self.arrays, self.released = reply, arrays, list[int]()

    def ask(self, form: dict[str, Any], arrays: list[np.ndarray]) -> tuple[dict[str, Any], list[np.ndarray]]:
        return self.reply, self.arrays

    def garbled(self, error: Exception) -> BaseException:
        return Ended()


@pytest.mark.parametrize("reply", [
    {}, {"answer": 1}, {"answer": {"array": 3}, "changed": [], "generators": []},
    {"answer": None, "changed": [[0, 5, {"array": 0}]], "generators": []},
    {"answer": None, "changed": [[9, 0, {"array": 0}]], "generators": []},
    {"answer": None, "changed": 3, "generators": []}, {"answer": None, "changed": [[0, 0, "text"]], "generators": []},
    {"answer": None, "changed": [], "generators": [{"state": 1}]},
    {"number": 1, "own": {"dict": []}, "parameters": ["w"], "changed": [], "generators": []},
    {"number": 1, "own": {"dict": [["w", 3]]}, "parameters": ["w"], "changed": [], "generators": []},
    {"number": "x", "own": {"dict": []}, "parameters": [], "changed": [], "generators": []},
])
def test_a_reply_that_makes_no_sense_is_the_end(reply: dict[str, Any]) -> None:
    form = {"name": "f", "new": "own" in reply}
    with pytest.raises(Ended):
        call(Liar(reply, [np.ones(2)]), form, (np.ones(2), np.random.default_rng(0)), {})
