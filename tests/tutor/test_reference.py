"""A reference case: its numbers, its description, and the comparison with what a program computed from it."""

import json
import zlib
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.given import results_at
from numpy_attention.tutor.catalogue import CATALOGUE, MISTAKES, TRIALS
from numpy_attention.tutor.reference import ReferenceCase, formula
from tests.gradcheck.acceptance.files import named

ATTENTION = "scaled_dot_product_attention: mask"
KNOWN = [one for one in MISTAKES.values() if one.diagnosis and one.covers not in TRIALS]


def in_float32(case: ReferenceCase) -> dict[str, np.ndarray]:
    """What a right program in float32 computes."""
    problem = case.problem.with_changes(inputs=case.inputs)
    return results_at(problem, case.inputs, (case.dy,))


def test_a_case_has_the_results_of_the_op() -> None:
    case = na.reference_case(ATTENTION, seed=3, sizes={"T_q": 16})
    q, k, v, mask = case.inputs.values()
    assert q.shape[-2] == 16
    y, cache = na.scaled_dot_product_attention(q, k, v, mask=mask)
    np.testing.assert_allclose(case.y, y, atol=1e-6)
    for name, grad in zip("qkv", na.scaled_dot_product_attention_backward(case.dy, cache)):
        np.testing.assert_allclose(case.grads[name], grad, atol=1e-6)
    assert {one.dtype.name for one in case.arrays.values()} == {"float32", "bool"}


def test_a_name_alone_gives_the_first_variant_and_a_layer_has_its_parameters() -> None:
    assert na.reference_case("softmax").entry.name == "softmax"
    case = na.reference_case("LayerNorm", dtype="float64")
    assert set(case.results) == {"y", "dx", "dgamma", "dbeta"}
    assert case.arrays["gamma"].dtype == np.float64


def test_the_description_is_complete() -> None:
    about = json.loads(json.dumps(na.reference_case("layer_norm").about()))
    assert about["formula"].startswith("y = gamma (x - mean) / sqrt(var + eps) + beta")
    assert about["options"] == {"eps": 1e-5}
    assert about["arrays"]["gamma"] == {"dtype": "float32", "shape": [about["sizes"]["d"]], "axes": "(d,)"}
    assert about["version"] == na.__version__
    dropout = na.reference_case("dropout")
    kept = dropout.arrays["random.0"] >= dropout.options["rate"]
    np.testing.assert_allclose(dropout.grads["x"], dropout.dy * kept / (1 - 0.4), rtol=1e-6)
    assert formula(na.LayerNorm) == (na.LayerNorm.__doc__ or "").partition("\n")[0]


def test_every_entry_is_a_case_that_its_own_results_in_float32_pass() -> None:
    for name in CATALOGUE:
        case = na.reference_case(name)
        names = [*case.inputs, *(name for name in case.options if isinstance(case.options[name], np.ndarray)), "dy"]
        assert len({*names, *case.results}) == len(names) + len(case.results), name
        assert case.compare(in_float32(case)).ok, name


def test_the_numbers_are_the_same_on_every_python_and_numpy() -> None:
    """Inputs and dy of all cases; only the results depend on the machine, in their last digits."""
    total = 0
    for name in CATALOGUE:
        case = na.reference_case(name)
        given = (one.tobytes() for name, one in case.arrays.items() if name not in case.results)
        total = zlib.crc32(b"".join(given), total)
    assert total == 1659305634


def test_numbers_of_16_bits_are_exact_in_float32() -> None:
    case = na.reference_case("softmax", dtype="bfloat16")
    assert not (case.inputs["x"].view(np.uint32) & 0xFFFF).any()
    halves = na.reference_case("softmax", dtype="float16").inputs["x"]
    np.testing.assert_array_equal(halves, halves.astype(np.float16))


def test_an_array_is_judged_by_its_dtype() -> None:
    case = na.reference_case(ATTENTION)
    halves = {name: one.astype(np.float16) for name, one in case.results.items()}
    assert case.compare(halves).ok
    widened = {name: one.astype(np.float32) for name, one in halves.items()}
    advice = "errors as of bfloat16: if the program computed in bfloat16, name this dtype"
    with pytest.raises(GradientError, match=advice):
        case.compare(widened)
    assert case.compare(widened, dtype="float16").ok
    case = na.reference_case(ATTENTION, dtype="float16")
    assert case.compare({name: one.astype(np.float16).astype(np.float32) for name, one in case.results.items()}).ok


@pytest.mark.parametrize("mistake", KNOWN[::8], ids=lambda one: one.name)
def test_a_known_mistake_is_caught(mistake: Any) -> None:
    assert named(mistake)[0] in ("named", "caught")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_known_mistakes_are_called_by_name(dtype: str) -> None:
    found = {one.name: named(one, dtype)[0] for one in KNOWN}
    # Of these, only the conduct is wrong: a second call, an argument, a dtype; or no sizes of a case suit them.
    unwritten = {name for name, state in found.items() if state == "not written"}
    assert unwritten <= {
        "InputKeptOnTheLayer", "one_mask_for_two_uses", "scratch_in_dy", "scratch_in_the_cache",
        "float64_out_of_float32", "branch_reads_a_changed_gradient", "keys_cut_with_the_length_of_the_queries",
    }
    states = [state for state in found.values() if state != "not written"]
    assert states.count("named") >= 0.95 * len(states)


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda: na.reference_case("sofmax"), "no op, layer or model 'sofmax'; the nearest are 'softmax'"),
    (lambda: na.reference_case("softmax", dtype="float8"), "dtype must be one of float32, float64, float16, bfloat16"),
    (lambda: na.reference_case("softmax", sizes={"T": 3}), "softmax has no size T to choose; its sizes are ..., d"),
    (lambda: na.reference_case("softmax", sizes={"d": 0}), "softmax: d must be at least 1"),
    (lambda: na.reference_case("softmax: axis 7"), "the nearest are 'softmax', 'softmax: axis 0'"),
    (lambda: na.reference_case("softmax", sizes={"d": 2.5}), "seed and sizes must be whole numbers"),
    (lambda: na.reference_case("softmax", seed=-1), "seed must be at least 0, got -1"),
    (lambda: na.reference_case("softmax").compare({}), "no result is given; the results are y, dx"),
    (lambda: na.reference_case("softmax").compare({"dq": np.zeros(3)}), "the results are y, dx, in float32"),
    (lambda: na.reference_case("softmax").compare({"dx": np.zeros(3, int)}), "got dx in int64"),
    (lambda: na.reference_case("softmax").compare({"dx": np.zeros(3)}), r"softmax: dx must have shape"),
])
def test_a_wrong_argument_is_one_clear_line(wrong: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as failure:
        wrong()
    assert "\n" not in str(failure.value)
