"""Plant a mistake in a backward, and return the report of the check."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, Report, gradcheck, gradcheck_vjp

Backward = Callable[..., Any]


def caught(op: Backward, backward: Backward, inputs: Any, **options: Any) -> tuple[str, Report]:
    """The message and the report; the check must fail."""
    with pytest.raises(GradientError) as failure:
        gradcheck(op, backward, inputs, **options)
    assert failure.value.report is not None
    message = str(failure.value)
    assert len(message.splitlines()) <= 24, "a report is at most a screen"
    assert "repeat with seed=" in message
    return message, failure.value.report


def diagnosis_of(f: Callable[..., Any], vjp: Callable[..., Any], *inputs: np.ndarray) -> str:
    """The diagnosis; the check must fail."""
    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(f, vjp, inputs)
    assert failure.value.report is not None
    return failure.value.report.diagnosis


def with_mistake(backward: Backward, spoil: Callable[[np.ndarray], np.ndarray], which: int = 0) -> Backward:
    """A backward with a mistake in gradient number `which`."""

    def wrong(dy: np.ndarray, cache: Any) -> Any:
        grads = backward(dy, cache)
        if not isinstance(grads, tuple):
            return spoil(grads.copy())
        return tuple(spoil(grad.copy()) if i == which else grad for i, grad in enumerate(grads))

    return wrong


def times(factor: float, index: Any = ...) -> Callable[[np.ndarray], np.ndarray]:
    def spoil(grad: np.ndarray) -> np.ndarray:
        grad[index] *= grad.dtype.type(factor)
        return grad

    return spoil
