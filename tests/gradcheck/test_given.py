"""Given arrays are compared with right results: round-off of every dtype is allowed, and a mistake is named."""

import re
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, Report
from numpy_attention.gradcheck.given import compare_given, results_at
from numpy_attention.gradcheck.problem import FunctionProblem, OpProblem, Problem
from tests.gradcheck.acceptance.files import said_of
from tests.gradcheck.acceptance.test_acceptance import MISTAKES


@pytest.fixture
def problem(rng: np.random.Generator) -> OpProblem:
    shapes = {"q": (2, 4, 6), "k": (2, 3, 6), "v": (2, 3, 5)}
    inputs = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    attention, backward = ops.scaled_dot_product_attention, ops.scaled_dot_product_attention_backward
    return OpProblem(attention, backward, inputs, {"scale": 0.3})


@pytest.fixture
def dy(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (rng.standard_normal((2, 4, 5)),)


def said(problem: Problem, dy: Any, given: dict[str, np.ndarray], dtype: str = "float64") -> Report:
    """The report of wrong arrays."""
    with pytest.raises(GradientError) as failure:
        compare_given(problem, dy, given, dict.fromkeys(given, dtype))
    assert failure.value.report is not None
    assert failure.value.report.calls == 0
    return failure.value.report


def test_right_results_are_right_and_absent_ones_are_listed(problem: OpProblem, dy: Any) -> None:
    right = results_at(problem, problem.inputs, dy)
    report = compare_given(problem, dy, right, dict.fromkeys(right, "float64"))
    assert report.ok
    assert "not given" not in str(report)
    assert "not given: y, dq, dv" in str(compare_given(problem, dy, {"dk": right["dk"]}, {"dk": "float64"}))


@pytest.mark.parametrize(("name", "change", "words"), [
    ("dk", lambda g: -g, "dk: the sign is wrong"),
    ("dq", lambda g: g / 0.3, "dq: scale is left out"),
    ("dq", lambda g: g[:, ::-1], "dq: reversed along axis 1"),
    ("dv", lambda g: 0 * g, "dv: the backward returns zero"),
    ("dv", lambda g: np.where(np.arange(3)[:, None] == 2, 0, g), "dv: wrong only in the last place along axis 1"),
    ("dq", lambda g: g + 1e-9 * (np.arange(g.size).reshape(g.shape) == 7), "dq: right except for element [0, 1, 1]"),
    ("y", lambda y: 2 * y, "y: twice what it should be"),
    ("y", lambda y: y + 0.1 * np.sin(9 * y), "y: does the forward use another formula"),
])
def test_a_wrong_array_is_named(problem: OpProblem, dy: Any, name: str, change: Any, words: str) -> None:
    right = results_at(problem, problem.inputs, dy)
    report = said(problem, dy, right | {name: change(right[name])})
    assert [one.symbol for one in report.wrong] == [name]
    assert words in report.diagnosis


def hidden(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(x @ w))


def hidden_back(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
    d = dy * (1 - hidden(x, w) ** 2)
    return d @ w.T, x.T @ d


def test_a_step_of_the_forward_is_named(rng: np.random.Generator) -> None:
    x, w, dy = (rng.standard_normal(shape) for shape in ((4, 3), (3, 5), (4, 5)))
    report = said(FunctionProblem(hidden, hidden_back, (x, w), {}), (dy,), {"dx": dy @ w.T})
    assert re.search(r"dx: in `np.tanh\(x @ w\)` .* is left out, as if it were 1 everywhere", report.diagnosis)


def test_a_place_of_dy_that_is_ignored_is_named(problem: OpProblem, dy: Any) -> None:
    late = dy[0].copy()
    late[:, 0] = 0
    report = said(problem, dy, {"dv": results_at(problem, problem.inputs, (late,))["dv"]})
    assert "dv ignores place 0 along axis 1 of dy: does a loop or a slice begin one place late?" in report.diagnosis


def test_the_round_off_of_a_dtype_is_allowed_and_no_more(problem: OpProblem, dy: Any) -> None:
    right = results_at(problem, problem.inputs, dy)
    for dtype, unit in (("float32", 2.0**-24), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)):
        rounded = {name: one * (1 + unit * np.sign(np.sin(97 * one))) for name, one in right.items()}
        assert compare_given(problem, dy, rounded, dict.fromkeys(right, dtype)).ok
        assert "if the program computed in " in str(said(problem, dy, rounded))
        assert said(problem, dy, {"dk": 1.5 * right["dk"]}, dtype).diagnosis


def linear(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(x) + b)


@pytest.mark.parametrize(("given", "words"), [
    (lambda dy, x: {"db": dy[-1, -1]}, "db uses only the last of all rows of dy: does an assignment replace the sum"),
    (lambda dy, x: {"dx": np.cos(x)}, "dx: the factor dy is left out"),
    (lambda dy, x: {"dx": -dy * np.cos(x) * (1 + 0.003 * np.sin(9 * x))}, "sign"),
    (lambda dy, x: {"db": 0 * dy[0, 0]}, "db: the backward returns zero"),
])
def test_a_mistake_of_a_port_is_named_in_half_precision(given: Any, words: str, rng: np.random.Generator) -> None:
    x, b, dy = rng.standard_normal((3, 2, 50)), rng.standard_normal(50), rng.standard_normal((3, 2, 50))
    problem = FunctionProblem(linear, lambda dy, x, b: (dy * np.cos(x), dy.sum((0, 1))), (x, b), {})
    assert words in said(problem, (dy,), given(dy, x), "bfloat16").diagnosis


def test_a_dtype_that_cannot_tell_from_zero_says_so() -> None:
    case = na.reference_case("softmax", sizes={"d": 1024}, dtype="bfloat16")
    assert "dx: bfloat16 cannot tell most elements from zero here" in str(case.compare(case.results))
    with pytest.raises(GradientError, match="right: y"):
        case.compare({"y": case.y, "dx": 0 * case.grads["x"]})


@pytest.mark.parametrize(("change", "words"), [
    (lambda g: g[0], r"dk must have shape \(2, 3, 6\), got \(3, 6\)"),
    (lambda g: g.swapaxes(-1, -2), r"dk must have shape \(2, 3, 6\), got \(2, 6, 3\): transposed"),
    (lambda g: g.reshape(-1, order="F").reshape(g.shape), r"dk is in column-major order: write it row by row"),
    (lambda g: g.astype(np.float32).byteswap().astype(np.float64), "dk is in big-endian order"),
    (lambda g: np.where(g == g[1, 2, 3], np.nan, g), r"dk holds nan at index \[1, 2, 3\], and 35 finite numbers"),
])
def test_an_array_that_cannot_be_compared(problem: OpProblem, dy: Any, change: Any, words: str) -> None:
    given = change(results_at(problem, problem.inputs, dy)["dk"])
    with pytest.raises(ValueError, match=words):
        compare_given(problem, dy, {"dk": given}, {"dk": "float64"})


# right causes that docs/other_languages.md states
IN_A_FILE = {
    "one point": 18, "form": 8, "no function": 10, "ties": 0, "float32": 11, "structure": 0, "relative": 29,
    "ordinary": 80, "drawn": 94, "fresh": 100, "held out": 30,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_A_FILE)
def test_a_file_is_enough_for_as_many_causes_as_the_page_says(kind: str) -> None:
    assert sum(one.names_the_cause(said_of(one)) for one in MISTAKES[kind]) >= IN_A_FILE[kind]
