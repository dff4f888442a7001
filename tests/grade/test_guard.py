"""Answers of others are refused with a message; parts of an exercise are allowed. More tests are in `test_attacks`."""

import subprocess
import sys

import numpy as np
import pytest

from numpy_attention.grade.guard import ANSWERS, AUTODIFF, Calls, NotOwnWork, RefuseImports, refuse_complex_numbers

GUARDED = """
import numpy as np
import numpy_attention as na
from numpy_attention.grade.guard import NotOwnWork, guard_answers
from numpy_attention.layers import FeedForward, LayerNorm

guard_answers(["causal_mask"], ["linear_backward", "FeedForward"])

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except NotOwnWork:
        return True
    return False

x = np.ones((2, 4))
y, cache = na.linear(x, np.ones((4, 3)))
assert not refused(na.linear_backward, y, cache)                    # one of the parts of this exercise
_, cache = na.softmax(x)
assert refused(na.softmax_backward, x, cache)
assert refused(na.ops.softmax_backward, x, cache)
assert refused(na.causal_mask, 2, 2)
feed_forward = FeedForward(4, 5, np.random.default_rng(0), dtype=np.float64)
assert not refused(feed_forward.backward, *feed_forward.forward(x))  # the package may call all its functions
norm = LayerNorm(4, dtype=np.float64)
assert refused(norm.backward, *norm.forward(x))
assert refused(LayerNorm.backward, norm, *norm.forward(x))
assert na.softmax_backward.__name__ == "softmax_backward" and "dx" in na.softmax_backward.__doc__
"""


def test_guarded_package_allows_only_parts_of_the_exercise() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [*sorted(AUTODIFF), "torch.nn", "jax.numpy", ANSWERS[0] + "exercise"])
def test_refuses_imports_of_answers(name: str) -> None:
    with pytest.raises(ImportError) as failure:
        RefuseImports().find_spec(name, None)
    assert isinstance(failure.value, NotOwnWork)
    assert name in str(failure.value)


@pytest.mark.parametrize("name", ["numpy", "torchlight", "numpy_attention.ops", "numpy_attention.grade", "math"])
def test_other_imports_are_allowed(name: str) -> None:
    assert RefuseImports().find_spec(name, None) is None


def test_refuses_third_call_of_the_forward() -> None:
    calls = Calls()
    forward = calls.counted(lambda x: 2 * x, "double")
    for _ in range(5):
        assert forward(np.ones(1)) == 2
    calls.backward, calls.count = "double_backward", 0
    forward(np.ones(1))
    forward(np.ones(1))
    assert calls.refusal == ""
    with pytest.raises(NotOwnWork, match="double_backward calls double many times"):
        forward(np.ones(1))
    assert calls.refusal


def test_refuses_forward_call_with_complex_numbers() -> None:
    calls = Calls()
    forward = calls.counted(lambda x: 2 * x, "double")
    calls.backward = "double_backward"
    with pytest.raises(NotOwnWork, match="complex step"):
        forward(x=np.ones(1, complex))


@pytest.mark.parametrize("text", ["x = 3\ny = 1j", "x = 3\ny = (x + 0).imag"])
def test_refuses_complex_numbers_in_source_and_names_line(text: str) -> None:
    with pytest.raises(NotOwnWork, match="line 2 computes with complex numbers"):
        refuse_complex_numbers(text)


@pytest.mark.parametrize("text", ["image = 1", "def f(:", "x = '1j'  # .imag", "\0", "(" * 10_000])
def test_source_without_complex_numbers_or_with_syntax_errors_passes(text: str) -> None:
    refuse_complex_numbers(text)
