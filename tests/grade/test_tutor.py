"""What is said to a wrong answer: the smallest example in numbers, and the likely mistake."""

import re
from pathlib import Path

import pytest

from tests.grade.hand_in import grade, told


def test_a_wrong_answer_gets_its_numbers_and_its_name(tmp_path: Path) -> None:
    code, said = grade(tmp_path, "softmax", "return y * (1 - y) * dy")
    assert code == 1
    for words in ("smallest example", "x = [", "dx, yours:", "dx, differences:", "A known mistake, `diagonal_only`"):
        assert words in said
    assert "likely mistake" not in said, "where it is known nobody need guess"


def test_a_mistake_that_nobody_knows_gets_a_diagnosis() -> None:
    said = told("softmax", "return 3 * y * (dy - (dy * y).sum(axis=axis, keepdims=True))")
    assert "likely mistake: dx: " in said
    assert "A known mistake" not in said


def test_a_gradient_wrong_in_a_late_digit_is_shown_with_that_digit() -> None:
    backward = "t = np.tanh(u); return dy * ((1 + t) / 2 + x * (1 - t * t) / 2 * C * (1 + 0.044715 * x * x))"
    said = told("gelu", backward)
    shown = re.findall(r"dx, (?:yours|differences): +(\[.*?\])", said)
    assert len(set(shown)) == 2


def test_a_transpose_of_too_many_axes_is_explained(tmp_path: Path) -> None:
    _, said = grade(tmp_path, "attention", "return dy @ v.T, k, v")
    assert "swapaxes(-1, -2) turns the last two alone" in said


def test_the_draw_behind_the_smallest_example_is_said_to_be_another() -> None:
    said = told("embedding", "dtable[ids[..., :1]] += dy[..., :1, :]; return dtable")
    smallest, _, other = said.partition("On another draw, whose arrays are not shown:")
    assert "dtable, yours:" in smallest
    assert "likely mistake: " not in smallest
    assert "likely mistake: " in other


@pytest.mark.parametrize(("backward", "hint"), [
    ("dw = np.zeros((5, 3)); return dw - dw.sum(axis=-1), k, v", True),
    ("return np.zeros(96) + np.zeros(97), k, v", False),
])
def test_shapes_that_do_not_fit_are_shown_without_numbers(backward: str, hint: bool) -> None:
    said = told("attention", backward)
    assert "could not be broadcast together" in said
    assert ("without keepdims=True?" in said) == hint
    example = said.partition("The smallest example found on which it stops:")[2]
    assert re.search(r"q of shape \(.*k of shape \(.*v of shape \(.*dy of shape \(", example)
    assert " = " not in example


def test_a_product_whose_inner_sizes_do_not_meet_is_explained() -> None:
    said = told("linear", "return dy @ w, x, dy")
    assert "The inner sizes of the product do not meet: is a transpose missing?" in said


def test_a_dtype_that_was_widened_is_told_how_and_shown_without_numbers() -> None:
    answer = "dtable = np.zeros(table.shape); np.add.at(dtable, ids, dy); return dtable"
    said = told("embedding", answer)
    said, _, example = said.partition("The smallest example found:")
    assert "dtable of float32 is float64" in said
    assert "np.zeros returns float64: use np.zeros_like(...)" in said
    assert "table of shape (" in example
    assert " = [" not in example


def test_a_dtype_that_was_narrowed_gets_no_cure_for_the_opposite() -> None:
    answer = "np.add.at(dtable, ids, dy); return dtable.astype(np.float16) if dy.dtype == np.float32 else dtable"
    said = told("embedding", answer)
    said, _, example = said.partition("The smallest example found:")
    assert "dtable of float32 is float16" in said
    assert "makes float64" not in said
    assert " = [" not in example


def test_several_known_mistakes_are_said_to_be_one_of_these() -> None:
    said = told("embedding", "dtable[ids] += dy; return dtable")
    assert said.count("One of these known mistakes:") == 1
    assert "A known mistake" not in said
    assert said.count("How it hides: ") == 2


@pytest.mark.parametrize("left", ["p", "self.parameters[name]"])
def test_an_optimizer_that_makes_new_arrays_is_told_so(tmp_path: Path, left: str) -> None:
    step = "for name, p in self.parameters.items():\n            g = grads[name]\n            "
    code, said = grade(tmp_path, "adam", f"{step}{left} = p - self.learning_rate * g / (np.abs(g) + self.eps)")
    assert code == 1
    assert "the given arrays have not changed" in said
