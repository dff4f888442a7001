"""An entry draws its inputs and builds its layer, and a row of a page is an entry."""

from typing import Any

import numpy as np

from numpy_attention import layers, ops
from numpy_attention.gradcheck.check import EXHAUSTIVE
from numpy_attention.tutor.catalogue import CATALOGUE
from numpy_attention.tutor.entry import Entry, entry_of


def test_cases_are_small_and_repeatable_by_their_seed() -> None:
    for name, entry in CATALOGUE.items():
        first, again, other = (entry.case(seed) for seed in (3, 3, 4))
        assert all(np.size(value) <= EXHAUSTIVE for value in first.inputs.values()), name
        assert all(np.array_equal(value, again.inputs[key]) for key, value in first.inputs.items()), name
        assert any(not np.array_equal(value, other.inputs[key]) for key, value in first.inputs.items()), name


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
