"""A complex gradient in JAX's convention is told apart from one that is merely wrong."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.words.conventions import OTHER


def f(z: np.ndarray, x: np.ndarray) -> Any:
    return z**3 * x, np.abs(z) ** 2


def ours(dy: Any, z: np.ndarray, x: np.ndarray) -> Any:
    return dy[0] * np.conj(3 * z * z * x) + 2 * z * dy[1], (dy[0] * np.conj(z**3)).real


def theirs(dy: Any, z: np.ndarray, x: np.ndarray) -> Any:
    return dy[0] * 3 * z * z * x + 2 * np.conj(z) * dy[1], (dy[0] * z**3).real


@pytest.fixture
def inputs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal(4) + 1j * rng.standard_normal(4), rng.standard_normal(4)


def test_the_other_convention_is_named(inputs: Any) -> None:
    assert gradcheck_vjp(f, ours, inputs).ok
    with pytest.raises(GradientError) as caught:
        gradcheck_vjp(f, theirs, inputs)
    assert f"likely mistake: {OTHER}" in str(caught.value)


def test_what_is_wrong_in_both_is_not_excused(inputs: Any) -> None:
    with pytest.raises(GradientError) as caught:
        gradcheck_vjp(f, lambda dy, z, x: (theirs(dy, z, x)[0], ours(dy, z, x)[1]), inputs)
    assert OTHER not in str(caught.value)


def test_real_functions_are_not_asked(rng: np.random.Generator) -> None:
    with pytest.raises(GradientError) as caught:
        gradcheck_vjp(np.sin, lambda dy, x: -dy * np.cos(x), (rng.standard_normal(3),))
    assert OTHER not in str(caught.value)
