"""The properties of an answer: its forward, its form, its gradients, its memory."""

from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention.tutor.catalogue import EXERCISES, ours
from numpy_attention.tutor.grading import grade_module


def test_changed_forward_is_wrong() -> None:
    module = SimpleNamespace(**vars(ours()))
    module.softmax = lambda x, axis=-1: (2 * ours().softmax(x, axis)[0], ours().softmax(x, axis)[1])
    grade = grade_module(EXERCISES["softmax"], module, examples=5)
    assert grade.state == "wrong"
    assert "restore the forward of the exercise" in grade.text


def test_array_of_all_weights_is_wrong_in_tiled_attention() -> None:
    module = SimpleNamespace(**vars(ours()))
    right = module.tiled_attention_backward

    def wasteful(dy: Any, cache: Any) -> Any:
        q, k = cache.q, cache.k
        square = q @ k.swapaxes(-1, -2)
        return right(dy + 0 * square.sum(), cache)

    module.tiled_attention_backward = wasteful
    grade = grade_module(EXERCISES["tiled_attention"], module, examples=3)
    assert grade.state == "wrong"
    assert "1200 x 1200" in grade.text


def right_of_softmax(dy: Any, cache: Any) -> Any:
    y, axis = cache["y"], cache["axis"]
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


def softmax(x: Any, axis: int = -1) -> Any:
    y = ours().softmax(x, axis)[0]
    return y, {"y": y.copy(), "x": x, "axis": axis}


def last_call_kept(x: Any, axis: int = -1) -> Any:
    y, KEPT["last"] = softmax(x, axis)
    return y, None


KEPT: dict[str, Any] = {}


@pytest.mark.parametrize(("forward", "backward", "words"), [
    (softmax, lambda dy, cache: (right_of_softmax(dy, cache), dy.fill(0))[0], "backward changed dy in place"),
    (softmax, lambda dy, cache: (right_of_softmax(dy, cache), cache["x"].fill(0))[0], "the input x was changed in"),
    (softmax, lambda dy, cache: (right_of_softmax(dy, cache), cache["y"].fill(0))[0], "does backward change its cache"),
    (softmax, lambda dy, cache: (right_of_softmax(dy, cache), cache.update(seen=1))[0], "backward changed its cache"),
    (last_call_kept, lambda dy, _: right_of_softmax(dy, KEPT["last"]), "is data stored outside the cache"),
], ids=["dy", "input", "cache", "unused part of the cache", "global"])
def test_in_place_changes_and_hidden_state_are_wrong(forward: Any, backward: Any, words: str) -> None:
    module = SimpleNamespace(softmax=forward, softmax_backward=backward)
    grade = grade_module(EXERCISES["softmax"], module, examples=5)
    assert (grade.state, grade.passed) == ("wrong", 2)
    assert words in " ".join(grade.text.split())
