"""An entry draws its inputs, builds its layer, and makes the wrong calls that it lists."""

from typing import Any

import numpy as np

from numpy_attention import layers, models, ops
from numpy_attention.gradcheck.check import EXHAUSTIVE
from numpy_attention.tutor.catalogue import CATALOGUE
from numpy_attention.tutor.entry import Entry, entry_of
from numpy_attention.tutor.tiny import tiny_model
from tests.tutor.rules import wrong_calls

LINEAR = Entry("linear", "linear", "x: B d_in, w: d_in d_out", ops.linear, ops.linear_backward, wrong="w+0 x:int64 w.T")


def test_cases_are_small_and_repeatable_by_their_seed() -> None:
    for name, entry in CATALOGUE.items():
        first, again, other = (entry.case(seed) for seed in (3, 3, 4))
        assert all(np.size(value) <= EXHAUSTIVE for value in first.inputs.values()), name
        assert all(np.array_equal(value, again.inputs[key]) for key, value in first.inputs.items()), name
        assert any(not np.array_equal(value, other.inputs[key]) for key, value in first.inputs.items()), name


def test_case_has_the_given_sizes_and_dtype() -> None:
    case = LINEAR.case(1, np.float32, {"B": 2, "d_in": 3, "d_out": 4})
    assert {name: value.shape for name, value in case.inputs.items()} == {"x": (2, 3), "w": (3, 4)}
    assert {value.dtype for value in case.inputs.values()} == {np.dtype(np.float32)}
    assert case.functions() == (ops.linear, ops.linear_backward)
    assert case.own_inputs.keys() == case.inputs.keys()


def test_each_case_builds_a_layer_with_random_parameters() -> None:
    def build(sizes: Any, rng: np.random.Generator, dtype: Any) -> layers.LayerNorm:
        return layers.LayerNorm(sizes["d"], dtype=dtype)

    case = Entry("norm", "LayerNorm", "x: B d", build=build).case(0)
    assert case.inputs.keys() == {"x", "gamma", "beta"}
    assert case.own_inputs.keys() == {"x"}
    assert not np.any(case.inputs["gamma"] == 1.0)  # a gamma of ones would hide mistakes
    assert not np.any(case.inputs["beta"] == 0.0)
    assert case.functions() == (case.layer.forward, case.layer.backward)
    assert case.problem().parameters == {"gamma", "beta"}


def test_frozen_arrays_are_random_inputs_without_gradient() -> None:
    def build(sizes: Any, rng: np.random.Generator, dtype: Any) -> layers.LayerNorm:
        layer = layers.LayerNorm(sizes["d"], dtype=dtype)
        layer.frozen = ("gamma",)
        return layer

    case = Entry("norm", "LayerNorm", "x: B d", build=build).case(0, np.float32)
    assert list(case.inputs) == ["x", "beta", "gamma"]
    assert case.inputs["gamma"] is case.layer.gamma
    assert not np.any(case.inputs["gamma"] == 1.0)
    assert case.own_inputs.keys() == {"x"}
    assert case.problem().parameters == {"beta"}


def test_wrong_call_changes_only_one_input() -> None:
    calls = wrong_calls(LINEAR.case(1, np.float64, {"B": 2, "d_in": 3, "d_out": 4}))
    assert calls["w+0"]["w"].shape == (4, 4)
    assert calls["x:int64"]["x"].dtype == np.int64
    assert calls["w.T"]["w"].shape == (4, 3)
    assert all(calls[change]["x"].shape == (2, 3) for change in calls)


def test_row_of_a_page_is_an_entry() -> None:
    row = {
        "case": "linear: wide", "inputs": "x: B d_in, w: d_in d_out", "first": "x *= 100", "sizes": "d_in >= 7, B = 2",
        "refused": "w+0 x:int64", "tolerance": "1e-3",
    }
    entry = entry_of(row, vars(ops))
    assert (entry.name, entry.covers, entry.wrong, entry.tolerance) == ("linear: wide", "linear", "w+0 x:int64", 1e-3)
    assert (entry.at_least, entry.fixed) == ({"d_in": 7}, {"B": 2})
    case = entry.case(0)
    assert case.inputs["x"].shape[0] == 2
    assert np.abs(case.inputs["x"]).max() > 50 > np.abs(case.inputs["w"]).max()
    heads = entry_of({"case": "split_heads", "inputs": "x: T H*d", "options": "num_heads=H"}, vars(ops)).case(0)
    assert heads.options == {"num_heads": heads.sizes["H"]}
    assert CATALOGUE["softmax"].wrong == "x:int64 x[list]"


def test_tiny_model_has_the_options_of_its_case() -> None:
    sizes, rng = {"V": 5}, np.random.default_rng(0)
    plain = tiny_model(models.GPT, sizes, rng, np.float64)
    other = tiny_model(models.GPT, sizes, rng, np.float64, rank=2, recompute=True, rows=3)
    assert not any(name.endswith(".a") for name in plain.parameters())
    assert any(name.endswith(".a") for name in other.parameters())
    assert (plain.recompute, other.recompute) == (False, True)
    assert other.logits_at_once == 15 < plain.logits_at_once
