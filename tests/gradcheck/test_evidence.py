"""After a failed check, backward and differences can be computed again."""

import numpy as np

from numpy_attention import ops
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Scalar
from numpy_attention.gradcheck.problem import OpProblem
from numpy_attention.gradcheck.report import Report


def evidence_of_softmax(x: np.ndarray) -> Evidence:
    """Two rows, and a dy of ones."""
    problem = OpProblem(ops.softmax, ops.softmax_backward, {"x": x}, {})
    y, _ = problem.run(problem.inputs)
    scalar = Scalar(problem.bind(problem.inputs), y, (np.ones_like(y[0]),))
    return Evidence(problem, problem.inputs, scalar, Report("softmax", {}, 0, 0))


def test_evidence_runs_the_backward_with_another_dy(rng: np.random.Generator) -> None:
    evidence = evidence_of_softmax(rng.standard_normal((2, 3)))
    alone = evidence.gradients()["x"]
    assert alone is not None
    assert np.allclose(alone, 0.0, atol=1e-15)  # rows sum to one for every x
    dy = (np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),)
    other = evidence.gradients(dy)["x"]
    assert other is not None
    assert np.all(other[0] != 0)
    assert not np.any(other[1])


def test_evidence_finds_arguments_that_an_output_depends_on(rng: np.random.Generator) -> None:
    evidence = evidence_of_softmax(rng.standard_normal((2, 3)))
    first_row = (np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),)
    v = rng.standard_normal((2, 3))
    assert evidence.moves("x", first_row, v * [[1.0], [0.0]])
    assert not evidence.moves("x", first_row, v * [[0.0], [1.0]])
    assert evidence.wrong == []


def test_evidence_finds_a_change_in_the_eighth_digit() -> None:
    inputs = {"x": np.array([1.0, -2.0])}
    problem = OpProblem(lambda x: (1 + 1e-8 * x, x), lambda dy, x: 1e-8 * dy, inputs, {})
    y, _ = problem.run(problem.inputs)
    evidence = Evidence(problem, problem.inputs, Scalar(problem.bind(problem.inputs), y, y), Report("op", {}, 0, 0))
    assert evidence.moves("x", (np.array([1.0, 0.0]),), np.array([1.0, 0.0]))
    assert not evidence.moves("x", (np.array([1.0, 0.0]),), np.array([0.0, 1.0]))


def test_evidence_tests_a_backward_at_other_arrays(rng: np.random.Generator) -> None:
    def op(x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        return np.sin(x) * t, (x, t)

    def forgets_t(dy: np.ndarray, cache: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        x, _ = cache
        return dy * np.cos(x), dy * np.sin(x)

    inputs = {"x": rng.standard_normal(5), "t": rng.standard_normal(5)}
    problem = OpProblem(op, forgets_t, inputs, {})
    y, _ = problem.run(inputs)
    scalar = Scalar(problem.bind(inputs), y, (rng.standard_normal(5),))
    evidence = Evidence(problem, inputs, scalar, Report("op", {}, 0, 0))
    assert not evidence.right_at(["x"], inputs)
    assert evidence.right_at(["t"], inputs)
    assert evidence.right_at(["x"], {**inputs, "t": np.ones(5)})
    assert not evidence.right_at(["x"], {"x": np.full(5, np.pi / 2), "t": np.ones(5)})  # zero derivative


def test_evidence_compares_gradient_and_difference_along_a_direction(rng: np.random.Generator) -> None:
    inputs = {"x": rng.standard_normal(4)}
    problem = OpProblem(lambda x: (np.sin(x), x), lambda dy, x: 2 * dy * np.cos(x), inputs, {})
    y, _ = problem.run(problem.inputs)
    dy, v = rng.standard_normal(4), rng.standard_normal(4)
    evidence = Evidence(problem, problem.inputs, Scalar(problem.bind(problem.inputs), y, (dy,)), Report("op", {}, 0, 0))
    off, true, size, _ = evidence.disagreement("x", v)
    assert np.isclose(true, float(np.sum(dy * np.cos(problem.inputs["x"]) * v)), rtol=1e-8)
    assert np.isclose(off, true, rtol=1e-8)
    assert size > abs(true)
