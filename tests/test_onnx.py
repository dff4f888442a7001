"""All cases of the ONNX standard for attention and its parts: our results, and our gradients of the same calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import OpProblem
from tests.onnx_operators import OPERATORS, SHORT, Call, cases_of, expected_results, inputs_and_attributes

runner = pytest.importorskip("onnx.backend.test.runner")


def calls(operator: str, dtype: type | None = None) -> Iterator[tuple[Any, Call]]:
    """Each case of an operator with our call; with a dtype, the arrays of floats have this dtype."""
    for case in cases_of(operator):
        inputs, attributes = inputs_and_attributes(case)
        for name, x in inputs.items():
            if dtype is not None and x.dtype.kind == "f":
                inputs[name] = x.astype(dtype)
        for adapter in OPERATORS[operator].adapters:
            call = adapter(inputs, attributes)
            if call is not None:
                yield case, call


def test_standard_has_251_cases_of_these_operators() -> None:
    numbers = {operator: len(cases_of(operator)) for operator in OPERATORS}
    assert numbers == {operator: one.number for operator, one in OPERATORS.items()}
    assert sum(numbers.values()) == 251


@contextmanager
def named(case: Any, *more: str) -> Iterator[None]:
    """Adds the name of the case to a failed assertion."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{', '.join((case.name, *more))}: {error}") from None


IN_TILES = (na.tiled_attention, na.tamed_tiled_attention)


# The tolerance is the tolerance of the case, 1e-3 for all. ONNX allows two steps of bfloat16, 2**-6; we also allow two
# steps of float16, 2**-9: the stored float16 results are themselves up to 1.01e-3 away from the exact results.
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_results_of_all_cases_agree(operator: str) -> None:
    for case, call in calls(operator):
        with named(case):
            results = call.results(*call.op(**call.arguments, **call.options))
        for name, expected in expected_results(case).items():  # every stored output, also states and scores
            if results[name] is None and call.op in IN_TILES:
                continue
            ours = np.asarray(results[name])
            if expected.dtype.name in SHORT:
                ours = ours.astype(expected.dtype)
            rtol = max(case.rtol, 2**-9) if expected.dtype == np.float16 else case.rtol
            with named(case, name):
                runner.Runner.assert_similar_outputs([expected], [ours], rtol, case.atol)


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_all_cases_agree_with_complex_steps(operator: str) -> None:
    for case, call in calls(operator, np.float64):
        if call.op in IN_TILES:  # takes long here; tests/ops compares its gradients with the dense form
            continue
        with named(case):
            problem = OpProblem(call.op, call.op_backward, call.arguments, call.options)
            report = check(problem, exhaustive=0, reference="complex", structure=False)
            assert report.error < 1e-11, report
