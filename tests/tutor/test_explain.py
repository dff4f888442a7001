"""The tutor explains a wrong answer: the smallest example in numbers, and the likely mistake."""

import re
from pathlib import Path

import pytest

from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.child import grade_here
from tests.tutor.hand_in import RIGHT, tutor_text, written


def test_wrong_answer_is_shown_in_numbers_and_named(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return y * (1 - y) * dy")
    for words in ("smallest example", "x = [", "dx, yours:", "dx, differences:", "a known mistake, `diagonal_only`"):
        assert words in output
    assert "likely mistake" not in output, "a known mistake needs no diagnosis"


def test_unknown_mistake_gets_a_diagnosis(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return 3 * y * (dy - (dy * y).sum(axis=axis, keepdims=True))")
    assert "likely mistake: dx: " in output
    assert "a known mistake" not in output


def test_transpose_of_too_many_axes_is_explained(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "attention", "return dy @ v.T, k, v")
    assert "swapaxes(-1, -2) exchanges only the last two axes" in output


def test_likely_mistake_comes_first_and_the_report_of_a_larger_example_last(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "embedding", "dtable[ids[..., :1]] += dy[..., :1, :]; return dtable")
    order = ("likely mistake: ", "The smallest example found", "dtable, yours:", "For another, larger example")
    assert sorted(order, key=output.index) == list(order)


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


def test_example_has_a_size_of_one_if_larger_examples_are_right(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", RIGHT + " + (y == 1)")
    assert "x = [0.1257] dy = [-0.6101] dx, yours: [1.]" in output


def test_known_mistake_comes_first_and_then_the_smallest_example(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return y * (1 - y) * dy")
    order = ("a known mistake", "How it hides", "smallest example", "larger example")
    assert sorted(order, key=output.index) == list(order)


def test_axes_of_length_one_are_not_shown_and_lines_are_short(tmp_path: Path) -> None:
    file = written(tmp_path, "attention", "return 2 * q, 3 * k, 4 * v")
    text = grade_here(file, EXERCISES["attention"]).text
    assert "The smallest example found (without the first 2 axes, of length 1):" in text
    assert "[[[" not in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(("answer", "hint"), [
    ("return dy + np.zeros((97, 5)).T, x, w", "`.T` reverses all axes"),
    ("return np.diag(dy[None, None]) + x, x, w", "np.diag takes one vector or one matrix"),
    ("return np.einsum('...i,...j->ij', x, dy), x, w", "einsum does not sum over `...`"),
])
def test_shape_errors_get_advice(tmp_path: Path, answer: str, hint: str) -> None:
    assert hint in tutor_text(tmp_path, "linear", answer)
