"""The properties of an answer in turn: its forward, its form, its numbers, its memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention import layers
from numpy_attention.gallery import MUTANTS
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.grading import grade_module
from numpy_attention.grade.references import ours
from tests.grade.hand_in import answer_of, grade


def test_a_forward_that_was_changed_is_noticed() -> None:
    module = SimpleNamespace(**vars(ours()))
    module.softmax = lambda x, axis=-1: (2 * ours().softmax(x, axis)[0], ours().softmax(x, axis)[1])
    grade = grade_module(EXERCISES["softmax"], module, examples=5)
    assert grade.state == "wrong"
    assert "put it back" in grade.text


def test_a_whole_square_array_is_noticed() -> None:
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


@pytest.mark.parametrize(("backward", "words"), [
    ("pass", "returned None; is there a `return`"),
    ("return dy @ w.T, x.T @ dy", "returned 2 gradients, expected 3: dx"),
    (
        "return dy @ w.T, np.einsum('...i,...j->...ij', x, dy), dy.sum(axis=tuple(range(dy.ndim - 1)))",
        "the sum over the batch axes"
    ),
    ("return (dy @ w.T).tolist(), w, dy", "dx must be an array of shape"),
    ("return (dy @ w.T).astype(int), w, dy", "dx must hold floats, got int64"),
    ("return dy[99], w, dy", "stopped with IndexError"),
    (
        "return dy @ w.T, (x[..., None] @ dy[..., None, :]).sum(tuple(range(dy.ndim - 1))), dy.sum()",
        "db must be an array of shape (1,), got a single number"
    ),
    (
        "rows = dy.reshape(-1, w.shape[1])\n    return rows @ w.T, x.reshape(-1, w.shape[0]).T @ rows, rows.sum(0)",
        "the right number of elements: a reshape is missing"
    ),
    (
        "rows = dy.reshape(-1, w.shape[1])\n    return dy @ w.T, rows.sum(0), x.reshape(-1, w.shape[0]).T @ rows",
        "the right ones in another order"
    ),
])
def test_an_answer_of_the_wrong_form_gets_a_plain_explanation(tmp_path: Path, backward: str, words: str) -> None:
    code, said = grade(tmp_path, "linear", backward)
    assert code == 1
    assert words in " ".join(said.split()), said
    assert "Traceback" not in said


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda dx, grads: dx, "returned ndarray, expected a tuple: dx, grads"),
    (lambda dx, grads: (dx, grads, dx), "returned 3 things"),
    (lambda dx, grads: (dx, list(grads)), "must be the dict grads, got list"),
    (lambda dx, grads: (dx, {"w_q": grads["w_q"]}), "no gradient for the parameter w_k, w_o, w_v"),
    (lambda dx, grads: (dx, {**grads, "w": dx}), "grads holds w, and there is no such parameter"),
    (lambda dx, grads: (dx, {**grads, "w_q": grads["w_q"][0]}), "grads['w_q'] must have the shape of its argument"),
])
def test_what_a_layer_returns_in_the_wrong_form_gets_a_plain_explanation(wrong: Any, words: str) -> None:
    class Theirs(layers.MultiHeadAttention):
        def backward(self, dy: Any, cache: Any) -> Any:
            return wrong(*super().backward(dy, cache)[-2:])

    module = SimpleNamespace(**{**vars(ours()), "MultiHeadAttention": Theirs})
    grade = grade_module(EXERCISES["multi_head_attention"], module, examples=2)
    assert grade.state == "wrong"
    assert words in " ".join(grade.text.split())


def test_after_the_first_wrong_property_no_other_is_tried() -> None:
    module = answer_of(EXERCISES["heads"], MUTANTS["split_backward_by_reshape"])
    grade = grade_module(EXERCISES["heads"], module, examples=3)
    assert (grade.state, grade.passed, grade.of) == ("wrong", 8, 12)  # two of split_heads, all of concat_heads
    assert grade.text.count("WRONG") == 1
