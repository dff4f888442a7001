"""Rules that every op, layer and model follows, besides the properties by which the catalogue finds mistakes."""

import copy
import re
from typing import Any

import numpy as np

from numpy_attention.gradcheck.problem import Arrays, is_float, random_cotangent
from numpy_attention.gradcheck.robust import spaced
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.tutor.compare import close, same
from numpy_attention.tutor.entry import Case, Entry
from tests.tutor.plain import PLAIN


def gradients_share_no_memory(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """The caller may add to a gradient in place: this changes no input and no other gradient."""
    case = entry.case(seed, np.float64, sizes)
    inputs = copy.deepcopy(case.inputs)
    problem = case.problem()
    y, cache = problem.run(case.inputs)
    grads = problem.pull_back(random_cotangent(y, seed), cache)
    found = {name: grad for name, grad in grads.items() if grad is not None and grad.size}
    for name, grad in found.items():
        for other, another in found.items():
            shared = name != other and np.shares_memory(grad, another)
            assert not shared, f"{entry.name}: d{name} and d{other} share memory"
        for other, value in case.inputs.items():
            shared = is_float(value) and np.shares_memory(grad, value)
            assert not shared, f"{entry.name}: d{name} is a view of {other}"
    assert same(inputs, case.inputs)


def two_uses_do_not_disturb_each_other(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Another forward between a forward and its backward does not change the gradients."""
    case = entry.case(seed, np.float64, sizes)
    alone, between = _gradients(case, seed, disturbed=False), _gradients(case, seed, disturbed=True)
    assert same(alone, between), (
        f"{entry.name}: the gradients change if another forward runs before the backward; "
        "is data stored outside the cache?"
    )


def forward_matches_formula(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """The output equals the output of the plain NumPy formula, if a page has such a formula (`PLAIN`)."""
    case = entry.case(seed, np.float64, sizes)
    plain, of_a_layer = PLAIN.get(entry.covers), {} if case.layer is None else {"layer": case.layer}
    expected = plain(**of_a_layer, **case.inputs, **copy.deepcopy(case.options)) if plain is not None else None
    if expected is None:  # no plain formula, or no formula for this variant
        return
    y, _ = case.op(**case.inputs, **copy.deepcopy(case.options))
    assert y.shape == expected.shape, f"{entry.name}: the forward gives {y.shape}, the formula {expected.shape}"
    wrong = ~(np.abs(y - expected) <= 1e-10 * max(1.0, float(np.max(np.abs(expected), initial=0.0))))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{entry.name}: the forward gives {y[at]:.9g} at {at}, the formula {expected[at]:.9g}")


def strides_do_not_matter(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Arrays that are not contiguous give equal results."""
    case = entry.case(seed, np.float64, sizes)
    problem = case.problem()
    y, cache = problem.run(case.inputs)
    dy = random_cotangent(y, seed)
    grads = problem.pull_back(dy, cache)
    y_2, cache = problem.run({
        name: spaced(value) if type(value) is np.ndarray else value for name, value in case.inputs.items()
    })
    grads_2 = problem.pull_back(tuple(spaced(one) for one in dy), cache)
    assert close(y, y_2), f"{entry.name}: strided inputs change the output"
    for name, grad in grads.items():
        assert close(grad, grads_2[name]), f"{entry.name}: strided inputs change d{name}"


def wrong_calls_are_refused(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """A wrong shape, dtype or id raises an error that names the expected value and the given value."""
    case = entry.case(seed, np.float64, sizes)
    for change, inputs in wrong_calls(case).items():
        try:
            case.op(**inputs, **case.options)
        except (ValueError, TypeError) as error:
            message = str(error)
            assert "must" in message, f"{entry.name}, {change}: the error {message!r} does not name the expected value"
            assert "got" in message, f"{entry.name}, {change}: the error {message!r} does not name the given value"
        else:
            shapes = {name: getattr(value, "shape", value) for name, value in inputs.items()}
            raise AssertionError(f"{entry.name}, {change}: no error for {shapes}")


def wrong_calls(case: Case) -> dict[str, Arrays]:
    """The inputs of each wrong call that the entry lists; the keys describe the mistake."""
    return {change: {**case.inputs, **changed_input(change, case.inputs)} for change in case.entry.wrong.split()}


def changed_input(change: str, inputs: Arrays) -> Arrays:
    found = re.fullmatch(r"(\w+?)(?:([+-]\d+)|:(\w+)|\.(T)|\[(\w+)\]|=(-?\d+))", change)
    if found is None:
        raise ValueError(f"catalogue: cannot read the wrong call {change!r}")
    name, axis, dtype, transpose, flat, value = found.groups()
    x = inputs[name]
    if axis:  # add one element along an axis
        return {name: np.concatenate([x, np.take(x, [0], axis=int(axis))], axis=int(axis))}
    if dtype:
        return {name: x.astype(dtype)}
    if transpose:
        return {name: x.swapaxes(-1, -2)}
    if flat:  # add or remove an axis, or replace the array by a list
        return {name: {"list": x.tolist(), "more": x[None], "row": x[0]}[flat]}
    return {name: np.full_like(x, int(value))}


def _gradients(case: Case, seed: int, disturbed: bool) -> Any:
    """The result of the backward; if `disturbed`, another forward runs before the backward."""
    forward, backward = case.functions()
    inputs = case.own_inputs
    y, cache = forward(**inputs, **copy.deepcopy(case.options))
    if disturbed:
        other = {name: value + 0.5 if is_float(value) else value for name, value in inputs.items()}
        another = {
            name: np.random.default_rng(99) if isinstance(value, np.random.Generator) else value
            for name, value in case.options.items()
        }
        forward(**other, **another)
    return backward(random_cotangent((np.asarray(y),), seed)[0], cache)
