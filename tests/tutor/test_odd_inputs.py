"""Every op, layer and model either handles unusual arrays or refuses them with a message of ours, not of NumPy."""

import copy
import re
import warnings
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck.problem import random_cotangent
from numpy_attention.tutor.entry import Case, Entry
from tests.tutor.test_properties import by_default_one_variant_of_each_large_layer

OURS = re.compile(r"^\w+: .* must (be|hold) .*, got ", re.DOTALL)


class Subclass(np.ndarray):
    """An array class from other code, which may define `*` differently."""


FOREIGN = {
    "nothing": lambda x: None,
    "a list": lambda x: x.tolist(),
    "objects": lambda x: x.astype(object),
    "a subclass": lambda x: x.view(Subclass),
    "long double": lambda x: x.astype(np.longdouble),
    "the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "complex numbers": lambda x: x.astype(complex),
    "strings": lambda x: x.astype(str),
}
# Ids, lengths and positions may be integers of any byte order; positions may be None.
FINE = {"the other byte order", "nothing"}


def run(case: Case, inputs: dict[str, Any], dy: bool = True) -> tuple[Any, Any]:
    """Outputs and gradients of a call with these inputs instead of the inputs of the case; a warning is an error."""
    forward, backward = case.functions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, cache = forward(**inputs, **copy.deepcopy(case.options))
        return np.asarray(y), backward(random_cotangent((np.asarray(y),), 0)[0], cache) if dy else None


def gradient_list(grads: Any) -> list[np.ndarray]:
    """All arrays that a backward returns."""
    if isinstance(grads, dict):
        return list(grads.values())
    if isinstance(grads, tuple):
        return [array for part in grads for array in gradient_list(part)]
    return [] if grads is None else [grads]


def refuses_other_types_in_one_sentence(entry: Entry) -> None:
    case = entry.case(1, np.float64)
    for name, value in case.own_inputs.items():
        for what, change in FOREIGN.items():
            if value.dtype.kind != "f" and what in (*FINE, "long double"):
                continue
            if name in ("b", "bias", "mask", "sink", "state", "context_mask", "keep", "add") and what == "nothing":
                continue
            if "linear_attention" in entry.covers and name in ("decay", "beta", "state") and what == "nothing":
                continue
            if value.dtype == bool and what == "objects":
                continue
            with pytest.raises((TypeError, ValueError)) as failure:
                run(case, {**case.own_inputs, name: change(value)}, dy=False)
            assert OURS.match(str(failure.value)), f"{name} as {what}: {failure.value}"


def empty_axis_gives_finite_results_or_one_sentence(entry: Entry) -> None:
    names = [name for name, size in entry.case(0).sizes.items() if isinstance(size, int)]
    for name in names:
        case = entry.case(0)
        shapes = entry.parsed.shapes({**case.sizes, name: 0})
        inputs = {argument: np.zeros(shapes[argument], value.dtype) for argument, value in case.own_inputs.items()}
        try:
            y, grads = run(case, inputs)
        except (TypeError, ValueError) as failure:
            refused = str(failure)
        else:
            refused = ""
        assert not refused or OURS.match(refused), f"{name} = 0: {refused}"
        if refused:
            continue
        assert np.isfinite(y).all(), f"{name} = 0"
        for array in gradient_list(grads):
            assert np.isfinite(array).all(), f"{name} = 0"


def backward_refuses_other_types_of_dy(entry: Entry) -> None:
    case = entry.case(5, np.float64)
    forward, backward = case.functions()
    y, cache = forward(**case.own_inputs, **copy.deepcopy(case.options))
    if np.ndim(y) == 0:
        return
    for what, change in FOREIGN.items():
        with pytest.raises((TypeError, ValueError)) as failure:
            backward(change(np.ones(y.shape)), cache)
        assert OURS.match(str(failure.value)), f"dy as {what}: {failure.value}"


@by_default_one_variant_of_each_large_layer
def test_unusual_arrays_give_right_results_or_one_sentence(entry: Entry) -> None:
    refuses_other_types_in_one_sentence(entry)
    empty_axis_gives_finite_results_or_one_sentence(entry)
    backward_refuses_other_types_of_dy(entry)
