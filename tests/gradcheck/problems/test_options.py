"""Options reach the function, whatever they are called, and the checker's own do not by mistake."""

import functools
import re
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import gradcheck, gradcheck_layer, gradcheck_vjp
from numpy_attention.gradcheck.problems.options import checked, fresh, name_of, split_options


def f(x: np.ndarray, seed: int = 7, power: int = 1) -> np.ndarray:
    return x**power + seed


def test_options_by_keyword_and_by_dict_reach_the_function() -> None:
    assert split_options(f, {"seed": 3}, {"power": 2}) == {"seed": 3, "power": 2}
    assert split_options(f, None, {}, {"seed": 0}) == {}, "the function keeps its own default"
    assert split_options(f, {"seed": 3}, {}, {"seed": 5}) == {"seed": 3}
    assert split_options(np.sin, None, {}, {"seed": 5, "rtol": 1e-3, "no_gradient": ("x",)}) == {}


def test_an_option_twice_or_of_two_meanings_is_refused() -> None:
    with pytest.raises(TypeError, match="the option power was given twice"):
        split_options(f, {"power": 2}, {"power": 2})
    with pytest.raises(TypeError, match=r"seed=5 is the checker's own, but f takes a seed too.*options=\{'seed': "):
        split_options(f, None, {}, {"seed": 5})
    with pytest.raises(TypeError, match="gradcheck f: options must be a dict by name, got list"):
        split_options(f, [1], {})


def test_every_call_gets_generators_of_its_own_and_arrays_in_the_dtype_of_the_inputs(rng: np.random.Generator) -> None:
    options = {"rng": rng, "table": rng.standard_normal(3).astype(np.float32), "mask": np.ones(2, bool), "p": 0.5}
    arrays = {"scale": np.array(0.5, np.float32), "ids": np.arange(2), "x": np.ones(3)}
    first, again = fresh(options, arrays), fresh(options, arrays)
    assert first["rng"].random() == again["rng"].random() == rng.random()
    assert first["table"].dtype == np.float64, "that of the first array with axes"
    assert first["mask"] is options["mask"]
    assert first["p"] == 0.5
    assert fresh(options, {"scale": arrays["scale"]})["table"].dtype == np.float32


def test_a_function_goes_by_its_name() -> None:
    class Twice:
        def __call__(self, x: np.ndarray) -> np.ndarray:
            return 2 * x

    assert [name_of(one) for one in (f, np.sin, functools.partial(f, power=2), Twice())] == ["f", "sin", "f", "Twice"]


def test_a_product_draws_the_mask_that_its_function_drew(rng: np.random.Generator) -> None:
    def drop(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x * (rng.random(x.shape) < 0.6)

    def vjp(dy: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return dy * (rng.random(x.shape) < 0.6)

    before = rng.bit_generator.state
    assert gradcheck_vjp(drop, vjp, (np.ones((4, 5)),), options={"rng": rng}).ok
    assert rng.bit_generator.state == before


GOOD: dict[str, Any] = {"seed": 0, "witness": "both", "rtol": 0.0, "atol": 0.0}


@pytest.mark.parametrize(("option", "value", "kind", "words"), [
    ("seed", -1, ValueError, "seed must be a whole number, 0 or more, got -1"),
    ("seed", "x", TypeError, "seed must be a whole number, 0 or more, got 'x'"),
    ("seed", True, TypeError, "seed must be a whole number, 0 or more, got True"),
    ("seed", 1.0, TypeError, "seed must be a whole number, 0 or more, got 1.0"),
    ("seed", None, TypeError, "seed must be a whole number, 0 or more, got None"),
    ("rtol", float("nan"), ValueError, "rtol must be a finite number, 0 or more, got nan"),
    ("rtol", -1e-3, ValueError, "rtol must be a finite number, 0 or more, got -0.001"),
    ("atol", float("inf"), ValueError, "atol must be a finite number, 0 or more, got inf"),
    ("atol", "y" * 5000, TypeError, "atol must be a finite number, 0 or more, got 'yyyy"),
    ("atol", 1j, TypeError, "atol must be a finite number, 0 or more, got 1j"),
    ("witness", "both of them", ValueError, "witness must be one of both, complex, differences, got 'both of them'"),
    ("witness", ["both"], ValueError, "witness must be one of both, complex, differences, got ['both']"),
])
def test_what_can_be_no_option_of_the_check_is_refused_in_one_line(
    option: str, value: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(f"gradcheck f: {words}")) as error:
        checked("f", **{**GOOD, option: value})
    assert len(str(error.value)) < 120


def test_every_door_refuses_before_anything_is_called() -> None:
    class Layer:
        def parameters(self) -> dict[str, np.ndarray]:
            return {"w": np.ones(2)}

        def forward(self, x: np.ndarray) -> Any:
            raise AssertionError("it is not to be called")

    def called(*_: Any) -> Any:
        raise AssertionError("it is not to be called")

    bad: list[dict[str, Any]] = [{"seed": -1}, {"rtol": float("nan")}, {"atol": -1.0}, {"witness": None}]
    for wrong in bad:
        words = f"gradcheck .*: {next(iter(wrong))} must be"
        with pytest.raises(ValueError, match=words):
            gradcheck(called, called, {"x": np.ones(2)}, **wrong)
        with pytest.raises(ValueError, match=words):
            gradcheck_vjp(called, called, {"x": np.ones(2)}, **wrong)
        with pytest.raises(ValueError, match=words):
            gradcheck_layer(Layer(), {"x": np.ones(2)}, **wrong)


def test_numbers_of_numpys_are_options_as_well() -> None:
    assert checked("f", np.int8(127), "both", np.float32(0.5), 1) == (127, 0.5, 1.0)
    assert gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (np.ones(2),), seed=np.int8(127)).seed == 127
