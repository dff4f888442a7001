"""A function on traced arrays computes what it computes on complex arrays, and each of its steps is recorded."""

from collections.abc import Callable

import numpy as np
import pytest

from numpy_attention.gradcheck.steps import Site, Step, Trace, moving

Array = np.ndarray

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "operators": lambda x: -x * x[::-1] + 2 / x - x**2,
    "matmul": lambda x: x @ x.T,
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "reductions": lambda x: x.sum(0) + x.mean(0) + np.max(x, 0) + np.cumsum(x, 0)[1],
    "where": lambda x: np.where(x > 0, x, 0.1 * x) + np.maximum(x, 0),
    "concatenate": lambda x: np.concatenate([x, np.stack([x[0], x[1]])]),
    "take": lambda x: x[[0, 0, 2]] * np.take_along_axis(x, np.argmax(x.real, 1)[:, None], 1),
    "linalg": lambda x: np.linalg.solve(x @ x.T + 3 * np.eye(3), x) + np.linalg.inv(x @ x.T + np.eye(3)) @ x,
    "pad": lambda x: np.pad(x, 1)[1:-1, 2:] + np.roll(x, 1, 0),
    "trace": lambda x: x.trace() + np.outer(x[0], x[1]),
}


def in_place(x: Array) -> Array:
    y = np.zeros_like(x)
    y += x
    np.multiply(y, x, out=y)
    np.add.at(y, [0, 0], x[:2])
    y[1] = x[2]
    return y


@pytest.mark.parametrize("f", [*FUNCTIONS.values(), in_place], ids=[*FUNCTIONS, "in place"])
def test_results_are_those_of_complex_arrays(f: Callable[[Array], Array], rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4)) + 1e-100j * rng.standard_normal((3, 4))
    trace, before = Trace(), x.copy()
    y, expected = np.array(f(trace.traced(x.copy()))), f(x.copy())
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(x, before)
    assert trace.steps


def test_absolute_value_is_differentiated() -> None:
    x = np.array([-2.0 + 3e-100j, 2.0 + 3e-100j])
    np.testing.assert_array_equal(np.abs(Trace().traced(x)).imag, [-3e-100, 3e-100])


def test_rule_replaces_the_change_at_one_step(rng: np.random.Generator) -> None:
    x = rng.standard_normal(3) + 1e-100j
    trace = Trace()
    twice = lambda x: np.sin(x) + np.cos(x)  # noqa: E731
    twice(trace.traced(x))
    site = next(site for site, _, _ in moving(trace) if site.name == "cos")
    y = twice(Trace([site], 0, lambda step, operand: 7e-100 * np.ones(3)).traced(x))
    np.testing.assert_allclose(y.imag, np.sin(x).imag + 7e-100)
    np.testing.assert_array_equal(y.real, twice(x).real)


def test_recorded_values_are_copies() -> None:
    def f(x: Array) -> Array:
        y = x * x
        y *= 0
        return y

    trace = Trace()
    f(trace.traced(np.array([2.0 + 1e-100j])))
    assert [step.result.real.tolist() for step in trace.steps] == [[4.0], [0.0]]


def test_comparison_has_no_derivative() -> None:
    trace = Trace()
    x = trace.traced(np.array([2.0 + 1e-100j]))
    assert (x > 1) & (x < 3)
    assert [step.site.name for step in trace.steps] == ["greater", "less"]
    assert not [*moving(trace)]


@pytest.mark.parametrize(("f", "code", "operands"), [
    (lambda x: x * np.exp(x), "x * np.exp(x)", ["x", "np.exp(x)"]),
    (lambda x: np.add(x, 2), "np.add(x, 2)", ["x", "2"]),
    (lambda x: x.sum(0), "x.sum(0)", ["x", "0"]),
    (lambda x: x[[1, 0]], "x[[1, 0]]", ["x"]),
    (lambda x: -x, "-x", ["x"]),
    (lambda x: np.concatenate([x, 2 * x]), "np.concatenate([x, 2 * x])", ["x", "2 * x"]),
])
def test_source_of_a_step_and_its_operands(f: Callable[[Array], Array], code: str, operands: list[str]) -> None:
    trace = Trace()
    f(trace.traced(np.array([2.0 + 1e-100j, 3.0])))
    last = trace.steps[-1]
    said, found = last.site.quoted()
    assert said.startswith(f"`{code}` (line ")
    assert found == operands


def test_long_code_is_cut() -> None:
    trace = Trace()
    x = trace.traced(np.array([2.0 + 1e-100j]))
    x * (1.0 + 2.0 + 3.0 + 4.0 + 5.0 + 6.0 + 7.0 + 8.0 + 9.0 + 10.0 + 11.0 + 12.0)
    assert len(trace.steps[-1].site.quoted()[0]) < 90


def test_step_of_code_without_source_has_its_name() -> None:
    assert Site("<nowhere>", (3, 3, 1, 2), "sin").quoted() == ("step sin (line 3)", [])


def test_visits_of_a_loop_are_counted() -> None:
    trace = Trace()
    y = x = trace.traced(np.array([2.0 + 1e-100j]))
    for _ in range(3):
        y = y * x
    steps: list[Step] = trace.steps
    assert [step.visit for step in steps] == [0, 1, 2]
    assert len({step.site for step in steps}) == 1
