"""Our own backward does not pass as an answer. Guarding changes the package, so each test runs in the other process."""

from pathlib import Path

import pytest

from numpy_attention.tutor.page import exercise_texts
from tests.tutor.hand_in import grade

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("other_process")]


@pytest.mark.parametrize("after", [
    "from numpy_attention import softmax, softmax_backward",
    ("from numpy_attention import softmax, softmax_backward as theirs\n"
    "def softmax_backward(dy, cache): return theirs(dy, cache)"),
    ("import numpy_attention as na\nsoftmax = na.softmax\n"
    "softmax_backward = lambda dy, cache: list(map(na.softmax_backward, [dy], [cache]))[0]"),
], ids=["import", "call", "map"])
def test_refuses_backward_of_the_package(tmp_path: Path, after: str) -> None:
    code, output = grade(tmp_path, "softmax", after=after)
    assert code == 1
    assert "softmax_backward of the package is not your own answer. Write your own" in output


@pytest.mark.parametrize(("name", "after", "words"), [
    ("multi_head_attention", "from numpy_attention.layers import MultiHeadAttention", "MultiHeadAttention.backward"),
    ("adam", "from numpy_attention import Adam", "Adam.step of the package"),
    ("causal_mask", "from numpy_attention import causal_mask", "causal_mask of the package"),
])
def test_refuses_layers_optimizers_and_functions(tmp_path: Path, name: str, after: str, words: str) -> None:
    code, output = grade(tmp_path, name, after=after)
    assert code == 1
    assert words in output


def test_exercise_may_use_its_parts(tmp_path: Path) -> None:
    solution = exercise_texts()["encoder_block"].code
    code, output = grade(tmp_path, "encoder_block", after=f"{solution}\nEncoderBlock.backward = backward\n")
    assert code == 0, output
