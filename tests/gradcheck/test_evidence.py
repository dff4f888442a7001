"""After a failure the backward and the differences can be asked again."""

import numpy as np

from numpy_attention import ops
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Scalar
from numpy_attention.gradcheck.problem import problem_of_op
from numpy_attention.gradcheck.report import Report


def evidence_of_softmax(x: np.ndarray) -> Evidence:
    """Two rows, and a dy of ones."""
    problem = problem_of_op(ops.softmax, ops.softmax_backward, {"x": x}, {})
    y, _ = problem.run(problem.inputs)
    scalar = Scalar(problem.bind(problem.inputs), y, (np.ones_like(y[0]),))
    return Evidence(problem, problem.inputs, scalar, Report("softmax", {}, 0, 0))


def test_the_backward_answers_another_dy(rng: np.random.Generator) -> None:
    evidence = evidence_of_softmax(rng.standard_normal((2, 3)))
    alone = evidence.gradients()["x"]
    assert alone is not None
    assert np.allclose(alone, 0.0, atol=1e-15)  # rows sum to one, whatever x is
    dy = (np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),)
    other = evidence.gradients(dy)["x"]
    assert other is not None
    assert np.all(other[0] != 0)
    assert not np.any(other[1])


def test_an_output_moves_only_with_what_it_depends_on(rng: np.random.Generator) -> None:
    evidence = evidence_of_softmax(rng.standard_normal((2, 3)))
    first_row = (np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),)
    v = rng.standard_normal((2, 3))
    assert evidence.moves("x", first_row, v * [[1.0], [0.0]])
    assert not evidence.moves("x", first_row, v * [[0.0], [1.0]])
    assert evidence.wrong == []
