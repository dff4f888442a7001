"""The tutor explains missing results and wrong shapes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention import layers
from numpy_attention.tutor.catalogue import EXERCISES, ours
from numpy_attention.tutor.grading import grade_module
from tests.tutor.hand_in import tutor_text


@pytest.mark.parametrize(("backward", "words"), [
    ("pass", "returned None; does it end with `return ...`?"),
    ("return dy @ w.T, x.T @ dy", "returned 2 gradients, expected 3: dx"),
    (
        "return dy @ w.T, np.einsum('...i,...j->...ij', x, dy), dy.sum(axis=tuple(range(dy.ndim - 1)))",
        "the sum over the batch axes"
    ),
    ("return (dy @ w.T).tolist(), w, dy", "dx must be an array of shape"),
    (
        "rows = dy.reshape(-1, w.shape[1])\n    return rows @ w.T, x.reshape(-1, w.shape[0]).T @ rows, rows.sum(0)",
        "the right number of elements: a reshape is missing"
    ),
    (
        "rows = dy.reshape(-1, w.shape[1])\n    return dy @ w.T, rows.sum(0), x.reshape(-1, w.shape[0]).T @ rows",
        "the right shapes in a wrong order"
    ),
    (
        "return dy @ w.T, (x.swapaxes(-1, -2) @ dy).sum(axis=0), dy.sum(axis=tuple(range(dy.ndim - 1)))",
        "dw must have the shape of its argument, (2, 2), got (2,): summed over too many axes"
    ),
])
def test_wrong_number_shape_or_dtype_is_explained(tmp_path: Path, backward: str, words: str) -> None:
    assert words in tutor_text(tmp_path, "linear", backward)


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda dx, grads: dx, "returned ndarray, expected a tuple: dx, grads"),
    (lambda dx, grads: (dx, {"w_q": grads["w_q"]}), "no gradient for the parameter w_k, w_o, w_v"),
    (lambda dx, grads: (dx, {**grads, "w": dx}), "grads contains w, but no parameter has this name"),
])
def test_wrong_results_of_a_layer_are_explained(wrong: Any, words: str) -> None:
    class Theirs(layers.MultiHeadAttention):
        def backward(self, dy: Any, cache: Any) -> Any:
            return wrong(*super().backward(dy, cache)[-2:])

    module = SimpleNamespace(**{**vars(ours()), "MultiHeadAttention": Theirs})
    grade = grade_module(EXERCISES["multi_head_attention"], module, examples=2)
    assert grade.state == "wrong"
    assert words in " ".join(grade.text.split())
