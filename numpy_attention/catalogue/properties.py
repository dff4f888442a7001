"""What every entry of the catalogue must do: have the right gradients, and keep the contract of an op.

Each property is a function of an entry, a seed and sizes, and raises an AssertionError that says what is wrong. Right
gradients are not enough: a backward that fits a wrong forward has them, and so has one that overwrites its inputs.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.catalogue.compare import close, same
from numpy_attention.catalogue.entry import Case, Entry
from numpy_attention.catalogue.table import PLAIN
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.line import Outputs
from numpy_attention.gradcheck.problem import Arrays, Gradients, is_float
from numpy_attention.gradcheck.robustness import in_layout, strided
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.gradcheck.tolerance import random_cotangent

Property = Callable[[Entry, int, Sizes | None], None]


class OtherDtype(AssertionError):
    """A result has another dtype than the inputs; `widened` if it is float64."""

    def __init__(self, message: str, came: np.dtype[Any]) -> None:
        super().__init__(message)
        self.widened = came == np.float64


def gradients_agree_with_differences(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """dx = J^T dy, to what float64 differences can resolve."""
    a_sample_of_the_gradients_agrees(entry, seed, sizes, None)


def a_sample_of_the_gradients_agrees(
    entry: Entry, seed: int, sizes: Sizes | None = None, sample: int | None = 24
) -> None:
    """The same for a sample of the elements of all arguments together: fast enough for thousands of draws."""
    report = check(entry.case(seed, np.float64, sizes).problem(), seed, sample=sample, structure=sample is None)
    assert report.error <= entry.tolerance, f"{entry.name}: off by {report.error:.1e}, more than {entry.tolerance:.0e}"


def float32_gradients_agree_with_float64_differences(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """float32 gradients differ from float64 differences by float32's rounding only."""
    check(entry.case(seed, np.float32, sizes).problem(), seed)


def dtype_is_kept(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """float32 in, float32 out, and float32 gradients; float64 likewise."""
    for dtype in (np.float32, np.float64):
        y, _, grads = _run(entry.case(seed, dtype, sizes), seed)
        for one in y:
            if one.dtype != dtype:
                raise OtherDtype(f"{entry.name}: {np.dtype(dtype)} in, {one.dtype} out", one.dtype)
        for name, grad in grads.items():
            if grad is not None and grad.dtype != dtype:
                raise OtherDtype(f"{entry.name}: d{name} of {np.dtype(dtype)} is {grad.dtype}", grad.dtype)


def nothing_is_changed(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Inputs, dy and cache do not change, and both functions return the same result when called twice."""
    case = entry.case(seed, np.float64, sizes)
    problem = case.problem()
    inputs = copy.deepcopy(case.inputs)
    y, cache = problem.run(case.inputs)
    assert same(inputs, case.inputs), f"{entry.name}: the forward changed its inputs"
    dy = random_cotangent(y, seed)
    kept, snapshot = copy.deepcopy(dy), copy.deepcopy(cache)
    first = copy.deepcopy(problem.pull_back(dy, cache))
    assert same(kept, dy), f"{entry.name}: backward changed dy"
    assert same(snapshot, cache), f"{entry.name}: backward changed its cache"
    assert same(inputs, case.inputs), f"{entry.name}: backward changed the inputs"
    assert same(first, problem.pull_back(dy, cache)), f"{entry.name}: backward called twice gives two answers"
    assert same(y, problem.run(case.inputs)[0]), f"{entry.name}: the forward called twice gives two answers"


def gradients_are_the_callers_own(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """A caller may add to a gradient in place: that changes no input, and no other gradient."""
    case = entry.case(seed, np.float64, sizes)
    inputs = copy.deepcopy(case.inputs)
    _, _, grads = _run(case, seed)
    found = {name: grad for name, grad in grads.items() if grad is not None and grad.size}
    for name, grad in found.items():
        for other, another in found.items():
            shared = name != other and np.shares_memory(grad, another)
            assert not shared, f"{entry.name}: d{name} and d{other} share memory"
        for other, value in case.inputs.items():
            shared = is_float(value) and np.shares_memory(grad, value)
            assert not shared, f"{entry.name}: d{name} is a view of {other}"
    assert same(inputs, case.inputs)


def strides_do_not_matter(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Arrays that are not contiguous give the same results."""
    case = entry.case(seed, np.float64, sizes)
    problem = case.problem()
    y, dy, grads = _run(case, seed)
    y_2, cache = problem.run({name: in_layout(value, strided) for name, value in case.inputs.items()})
    grads_2 = problem.pull_back(tuple(strided(one) for one in dy), cache)
    assert close(y, y_2), f"{entry.name}: other strides, other outputs"
    for name, grad in grads.items():
        assert close(grad, grads_2[name]), f"{entry.name}: other strides, another d{name}"


def wrong_calls_are_refused(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """A wrong shape, dtype or id raises an error that says what was expected and what was given."""
    case = entry.case(seed, np.float64, sizes)
    for change, inputs in case.wrong_calls().items():
        try:
            case.op(**inputs, **case.options)
        except (ValueError, TypeError) as error:
            message = str(error)
            assert "must" in message, f"{entry.name}, {change}: says only {message!r}"
            assert "got" in message, f"{entry.name}, {change}: {message!r} does not say what it got"
        else:
            shapes = {name: getattr(value, "shape", value) for name, value in inputs.items()}
            raise AssertionError(f"{entry.name}, {change}: accepted {shapes}")


def forward_is_the_formula(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """The output is that of the formula in plain NumPy, if a page has one (`PLAIN`)."""
    case = entry.case(seed, np.float64, sizes)
    plain, of_a_layer = PLAIN.get(entry.covers), {} if case.layer is None else {"layer": case.layer}
    expected = plain(**of_a_layer, **case.inputs, **copy.deepcopy(case.options)) if plain is not None else None
    if expected is None:  # no plain form, or none of this variant
        return
    y, _ = case.op(**case.inputs, **copy.deepcopy(case.options))
    assert y.shape == expected.shape, f"{entry.name}: the forward gives {y.shape}, the formula {expected.shape}"
    wrong = ~(np.abs(y - expected) <= 1e-10 * max(1.0, float(np.max(np.abs(expected), initial=0.0))))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{entry.name}: the forward gives {y[at]:.9g} at {at}, the formula {expected[at]:.9g}")


def two_uses_do_not_disturb_each_other(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Another forward between a forward and its backward changes nothing."""
    case = entry.case(seed, np.float64, sizes)
    alone, between = _gradients(case, seed, disturbed=False), _gradients(case, seed, disturbed=True)
    assert same(alone, between), (
        f"{entry.name}: the gradients change when it is used once more before its backward; "
        "is data stored outside the cache?"
    )


def _run(case: Case, seed: int) -> tuple[Outputs, Outputs, Gradients]:
    problem = case.problem()
    inputs: Arrays = case.inputs
    y, cache = problem.run(inputs)
    dy = random_cotangent(y, seed)
    return y, dy, problem.pull_back(dy, cache)


def _gradients(case: Case, seed: int, disturbed: bool) -> Any:
    """What the backward returns; if `disturbed`, the forward runs once more before it."""
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
