"""Where no rule explains a mistake, its place does."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_layer
from numpy_attention.gradcheck.diagnosis import place
from numpy_attention.layers import LayerNorm
from tests.gradcheck.planted import caught, spoilt


def test_only_the_last_row(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 5))
    spoil = spoilt(ops.softmax_backward, lambda dx: np.concatenate([dx[:-1], rng.standard_normal((1, 5))]))
    rng_state = rng.bit_generator.state

    def backward(dy: np.ndarray, cache: Any) -> Any:
        rng.bit_generator.state = rng_state
        return spoil(dy, cache)

    message, report = caught(ops.softmax, backward, {"x": x})
    assert report.arguments["x"].worst[0] == 3
    assert "only the last along axis 0" in message
    assert "stop one short" in message


def test_a_wrong_parameter_of_a_layer_is_named(rng: np.random.Generator) -> None:
    class Forgetful(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {**grads, "gamma": grads["gamma"] / 2}

    with pytest.raises(GradientError, match="dgamma: half of what it should be"):
        gradcheck_layer(Forgetful(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


def test_an_input_beside_right_parameters_has_lost_a_path(rng: np.random.Generator) -> None:
    class Uneven(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx * np.linspace(1, 2, dx.size).reshape(dx.shape), grads

    with pytest.raises(GradientError, match=r"every parameter's gradient is right, only dx is wrong"):
        gradcheck_layer(Uneven(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


WRONG = np.zeros((4, 4), dtype=bool)


@pytest.mark.parametrize(("index", "words"), [
    ((slice(None),), "every element"), (((1,), (2,)), "a single element"), ((3,), "only the last along axis 0"),
    ((slice(None), 0), "only the first along axis 1"), ((2,), "only number 2 along axis 0"),
    (np.eye(4, dtype=bool), "the diagonal"), (~np.eye(4, dtype=bool), "all but the diagonal"),
    (np.tri(4, k=-1, dtype=bool), "nothing above the diagonal"), (([0, 2],), "2 of 4 whole lines along axis 1"),
    (([0, 0, 2], [0, 1, 3]), ""),
])
def test_the_place_of_what_is_wrong_is_said_in_a_few_words(index: Any, words: str) -> None:
    wrong = WRONG.copy()
    wrong[index] = True
    assert place(wrong, np.ones((4, 4), dtype=bool)) == words
