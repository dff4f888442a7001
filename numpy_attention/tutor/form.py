"""The first check of a backward: it returns the right number of float arrays with the right shapes."""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.problem import explain_shape, is_float, random_cotangent
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.entry import Case, Entry


def check_form(entry: Entry, seed: int, sizes: Sizes | None) -> None:
    """Check that the backward returns the right number of arrays, with the right shapes and dtypes.

    Raises: AssertionError; its message names what is missing, or explains a wrong shape.
    """
    case = entry.case(seed, np.float64, sizes)
    forward, backward = case.functions()
    y, cache = forward(**case.own_inputs, **copy.deepcopy(case.options))
    answer = backward(random_cotangent((np.asarray(y),), seed)[0], cache)
    floats = {name: value for name, value in case.own_inputs.items() if is_float(value)}
    if case.layer is not None:
        _check_layer_form(case, floats, answer)
        return
    what = f"{entry.covers}_backward"
    wanted = ", ".join(f"d{name} {value.shape}" for name, value in floats.items())
    assert answer is not None, f"{what} returned None; does it end with `return ...`? It must return {wanted}"
    got = answer if isinstance(answer, (tuple, list)) else (answer,)
    if len(got) != len(floats):
        got = tuple(one for one in got if one is not None)  # an option that is off has the gradient None
    assert len(got) == len(floats), f"{what} returned {len(got)} gradients, expected {len(floats)}: {wanted}"
    shapes, expected = [getattr(grad, "shape", None) for grad in got], [value.shape for value in floats.values()]
    assert shapes == expected or Counter(shapes) != Counter(expected), (
        f"{what} returned arrays of the shapes {', '.join(map(str, shapes))}: the right shapes in a wrong order. "
        f"It must return {wanted}"
    )
    for (name, value), grad in zip(floats.items(), got):
        _check_array_form(f"{what}: d{name}", grad, value)


def _check_layer_form(case: Case, floats: Mapping[str, np.ndarray], answer: Any) -> None:
    wanted = ", ".join([*(f"d{name}" for name in floats), "grads"])
    assert isinstance(answer, tuple), f"backward returned {type(answer).__name__}, expected a tuple: {wanted}"
    assert len(answer) == len(floats) + 1, f"backward returned {len(answer)} values, expected {wanted}"
    *grads_of_inputs, grads = answer
    assert isinstance(grads, dict), f"the last value returned must be the dict grads, got {type(grads).__name__}"
    for (name, value), grad in zip(floats.items(), grads_of_inputs):
        _check_array_form(f"backward: d{name}", grad, value)
    names = case.layer.parameters()
    missing, unknown = sorted(names.keys() - grads.keys()), sorted(grads.keys() - names.keys())
    assert not missing, f"grads has no gradient for the parameter {', '.join(missing)}"
    assert not unknown, f"grads contains {', '.join(unknown)}, but no parameter has this name"
    for name, grad in grads.items():
        _check_array_form(f"backward: grads[{name!r}]", grad, names[name])


def _check_array_form(what: str, grad: Any, value: np.ndarray) -> None:
    kind = "a single number" if isinstance(grad, (float, np.number)) else type(grad).__name__
    assert isinstance(grad, np.ndarray), f"{what} must be an array of shape {value.shape}, got {kind}"
    assert grad.shape == value.shape, (
        f"{what} must have the shape of its argument, {value.shape}, got {grad.shape}: "
        f"{explain_shape(grad.shape, value.shape)}"
    )
    assert grad.dtype.kind == "f", f"{what} must have a float dtype, got {grad.dtype}"
