"""The tutor explains a wrong answer: the smallest example in numbers, and the likely mistake."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from tests.tutor.hand_in import RIGHT, tutor_text


def test_wrong_answer_is_shown_in_numbers_and_named(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return y * (1 - y) * dy")
    for words in ("smallest example", "x = [", "dx, yours:", "dx, differences:", "a known mistake, `diagonal_only`"):
        assert words in output
    assert "likely mistake" not in output, "a known mistake needs no diagnosis"


def test_unknown_mistake_gets_a_diagnosis(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return 3 * y * (dy - (dy * y).sum(axis=axis, keepdims=True))")
    assert "likely mistake: dx: " in output
    assert "a known mistake" not in output


def test_small_error_is_shown_with_enough_digits(tmp_path: Path) -> None:
    backward = "t = np.tanh(u); return dy * ((1 + t) / 2 + x * (1 - t * t) / 2 * C * (1 + 0.044715 * x * x))"
    output = tutor_text(tmp_path, "gelu", backward)
    shown = re.findall(r"dx, (?:yours|differences): +(\[.*?\])", output)
    assert len(set(shown)) == 2


def test_transpose_of_too_many_axes_is_explained(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "attention", "return dy @ v.T, k, v")
    assert "swapaxes(-1, -2) exchanges only the last two axes" in output


def test_likely_mistake_belongs_to_the_larger_example(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "embedding", "dtable[ids[..., :1]] += dy[..., :1, :]; return dtable")
    smallest, _, other = output.partition("For another, larger example (its arrays are not shown):")
    assert "dtable, yours:" in smallest
    assert "likely mistake: " not in smallest
    assert "likely mistake: " in other


@pytest.mark.parametrize(("backward", "hint"), [
    ("dw = np.zeros((5, 3)); return dw - dw.sum(axis=-1), k, v", True),
    ("return np.zeros(96) + np.zeros(97), k, v", False),
])
def test_shapes_that_do_not_match_are_shown_without_numbers(tmp_path: Path, backward: str, hint: bool) -> None:
    output = tutor_text(tmp_path, "attention", backward)
    assert "could not be broadcast together" in output
    assert ("without keepdims=True?" in output) == hint
    example = output.partition("The smallest example found that raises this error:")[2]
    assert re.search(r"q of shape \(.*k of shape \(.*v of shape \(.*dy of shape \(", example)
    assert " = " not in example


def test_product_with_different_inner_sizes_is_explained(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "linear", "return dy @ w, w, w[0]")
    assert "The inner sizes of the product are not equal: is a transpose missing?" in output


def test_widened_dtype_is_explained_without_numbers(tmp_path: Path) -> None:
    answer = "dtable = np.zeros(table.shape); np.add.at(dtable, ids, dy); return dtable"
    output = tutor_text(tmp_path, "embedding", answer)
    output, _, example = output.partition("The smallest example found:")
    assert "dtable of float32 is float64" in output
    assert "np.zeros returns float64: use np.zeros_like(...)" in output
    assert "table of shape (" in example
    assert " = [" not in example


def test_several_matching_mistakes_are_listed(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "embedding", "dtable[ids] += dy; return dtable")
    assert output.count("This is one of these known mistakes:") == 1
    assert "a known mistake" not in output
    assert output.count("How it hides: ") == 2


@pytest.mark.parametrize("left", ["p", "self.parameters[name]"])
def test_optimizer_that_creates_new_arrays_is_explained(tmp_path: Path, left: str) -> None:
    step = "for name, p in self.parameters.items():\n            g = grads[name]\n            "
    output = tutor_text(tmp_path, "adam", f"{step}{left} = p - self.learning_rate * g / (np.abs(g) + self.eps)")
    assert "the given arrays have not changed" in output


def test_example_has_no_softmax_of_one_number_and_no_matrix_of_one_number(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return y * dy")
    assert "x = [ 0.1257, -0.1321] dy = [-0.6101, 0.7486] dx, yours: [" in output
    assert "a known mistake, `sum_left_out`: dx = y dy" in output
    output = tutor_text(tmp_path, "softmax", "return y * (dy - (dy * y).sum(axis=-1, keepdims=True))")
    example = output.partition("The smallest example found: x = ")[2].partition(" axis = ")[0]
    assert np.shape(ast.literal_eval(example)) == (2, 2, 2)


def test_example_has_a_size_of_one_if_larger_examples_are_right(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", RIGHT + " + (y == 1)")
    assert "x = [0.1257] dy = [-0.6101] dx, yours: [1.]" in output


SCORES = "scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]); "


@pytest.mark.parametrize(("weights", "known"), [
    ("e = np.exp(scores - scores.max()); weights = e / e.sum(); return weights @ v, weights", True),
    ("e = np.exp(scores - scores.max(-1, keepdims=True)); e /= e.sum(); return e @ v, e", False),
])
def test_softmax_of_the_whole_matrix_is_explained_by_sums_of_rows(tmp_path: Path, weights: str, known: bool) -> None:
    output = tutor_text(tmp_path, "attention_forward", SCORES + weights)
    assert re.search(r"The rows of your weights sum to 0\.\d\d, 0\.\d\d, but each row must sum to 1\. All", output)
    assert ("a known mistake, `softmax_over_the_whole_matrix`" in output) == known
