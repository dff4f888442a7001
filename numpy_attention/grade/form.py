"""The first check of a backward: it returns the right number of float arrays, of the right shapes."""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Case, Entry
from numpy_attention.gradcheck.problem import is_float
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.gradcheck.tolerance import explain_shape, random_cotangent
from numpy_attention.grade.tutor import matmul_cures


class _WrongShape(AssertionError):
    """A gradient whose shape is not that of its argument; `why` is the diagnosis."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text}: {why}")
        self.text, self.why = text, why


def right_form(entry: Entry, seed: int, sizes: Sizes | None) -> None:
    """The backward returns arrays of the right number, shape and kind.

    Raises: AssertionError, with what is missing, or the diagnosis of a wrong shape.
    """
    try:
        _form_of(entry, seed, sizes)
    except _WrongShape as error:
        raise AssertionError(f"{error.text}: {_why(entry, error.why)}") from error


def _why(entry: Entry, why: str) -> str:
    """The diagnosis on larger sizes that differ: if all sizes are 1, many mistakes give the same shape."""
    for seed in range(8):
        try:
            _form_of(entry, seed, None)
        except _WrongShape as error:
            return error.why
        except Exception as error:  # the smallest example did not stop
            cures = matmul_cures(str(error), getattr(error, "place", ""))[-1:]
            return "\n".join([why, *(f"Where the sizes differ, a product stops. {cure}" for cure in cures)])
    return why


def _form_of(entry: Entry, seed: int, sizes: Sizes | None) -> None:
    case = entry.case(seed, np.float64, sizes)
    forward, backward = case.functions()
    y, cache = forward(**case.own_inputs, **copy.deepcopy(case.options))
    answer = backward(random_cotangent((np.asarray(y),), seed)[0], cache)
    floats = {name: value for name, value in case.own_inputs.items() if is_float(value)}
    if case.layer is not None:
        _form_of_layer(case, floats, answer)
        return
    what = f"{entry.covers}_backward"
    wanted = ", ".join(f"d{name} {value.shape}" for name, value in floats.items())
    assert answer is not None, f"{what} returned None; is there a `return` at its end? It must return {wanted}"
    got = answer if isinstance(answer, (tuple, list)) else (answer,)
    if len(got) != len(floats):
        got = tuple(one for one in got if one is not None)  # None stands for an option that is off
    assert len(got) == len(floats), f"{what} returned {len(got)} gradients, expected {len(floats)}: {wanted}"
    shapes, expected = [getattr(grad, "shape", None) for grad in got], [value.shape for value in floats.values()]
    assert shapes == expected or Counter(shapes) != Counter(expected), (
        f"{what} returned arrays of the shapes {', '.join(map(str, shapes))}: the right ones in another order. "
        f"It must return {wanted}"
    )
    for (name, value), grad in zip(floats.items(), got):
        _form_of_array(f"{what}: d{name}", grad, value)


def _form_of_layer(case: Case, floats: Mapping[str, np.ndarray], answer: Any) -> None:
    wanted = ", ".join([*(f"d{name}" for name in floats), "grads"])
    assert isinstance(answer, tuple), f"backward returned {type(answer).__name__}, expected a tuple: {wanted}"
    assert len(answer) == len(floats) + 1, f"backward returned {len(answer)} things, expected {wanted}"
    *grads_of_inputs, grads = answer
    assert isinstance(grads, dict), f"the last thing returned must be the dict grads, got {type(grads).__name__}"
    for (name, value), grad in zip(floats.items(), grads_of_inputs):
        _form_of_array(f"backward: d{name}", grad, value)
    names = case.layer.parameters()
    missing, unknown = sorted(names.keys() - grads.keys()), sorted(grads.keys() - names.keys())
    assert not missing, f"grads has no gradient for the parameter {', '.join(missing)}"
    assert not unknown, f"grads holds {', '.join(unknown)}, and there is no such parameter"
    for name, grad in grads.items():
        _form_of_array(f"backward: grads[{name!r}]", grad, names[name])


def _form_of_array(what: str, grad: Any, value: np.ndarray) -> None:
    kind = "a single number" if isinstance(grad, (float, np.number)) else type(grad).__name__
    assert isinstance(grad, np.ndarray), f"{what} must be an array of shape {value.shape}, got {kind}"
    if grad.shape != value.shape:
        raise _WrongShape(
            f"{what} must have the shape of its argument, {value.shape}, got {grad.shape}",
            explain_shape(grad.shape, value.shape)
        )
    assert grad.dtype.kind == "f", f"{what} must hold floats, got {grad.dtype}"
