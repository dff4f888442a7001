"""An exercise says what its file must define, and is tried as a line of the catalogue is."""

from types import SimpleNamespace

import pytest

from numpy_attention import ops
from numpy_attention.grade.exercise import Try
from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.references import ours


def test_a_file_must_define_each_op_with_its_backward_and_each_class() -> None:
    assert EXERCISES["heads"].needed == dict.fromkeys(
        ("split_heads", "split_heads_backward", "concat_heads", "concat_heads_backward"), "function"
    )
    assert EXERCISES["adam"].needed == {"Adam": "class"}
    assert EXERCISES["causal_mask"].needed["causal_mask"] == "function"
    assert EXERCISES["multi_head_attention"].needed == {"MultiHeadAttention": "class"}


@pytest.mark.parametrize("name", EXERCISES)
def test_our_own_module_holds_all_that_is_needed(name: str) -> None:
    for needed in EXERCISES[name].needed:
        assert callable(getattr(ours(), needed))


def test_a_try_is_an_entry_with_the_students_functions() -> None:
    module = SimpleNamespace(relu=ops.relu, relu_backward=lambda dy, cache: dy)
    entry = Try("relu", "x: B d", "a matrix").entry(module)
    assert (entry.name, entry.covers) == ("relu: a matrix", "relu")
    assert entry.op is ops.relu
    assert entry.op_backward is module.relu_backward


def test_mutants_of_options_that_an_exercise_lacks_are_left_out() -> None:
    names = {mutant.name for mutant in EXERCISES["attention"].mutants}
    assert "scale_left_out" in names
    assert "dv_before_dropout" not in names
    assert "dv_before_dropout" in {mutant.name for mutant in EXERCISES["attention_options"].mutants}


def test_what_is_theirs_to_write_the_package_does_not_lend() -> None:
    assert EXERCISES["softmax"].answers == []
    assert EXERCISES["rotary"].answers == ["rotary"]
    assert EXERCISES["adam"].answers == ["Adam"]
    assert "scaled_dot_product_attention" in EXERCISES["attention_forward"].answers


def test_the_slips_of_an_exercise_are_among_its_mutants() -> None:
    names = {mutant.name for mutant in EXERCISES["softmax"].mutants}
    assert {"sign_of_the_sum", "diagonal_only"} <= names
