"""Error messages: the function, the argument, the expected value, the given value, and a likely fix."""

import math
from typing import Any

import numpy as np
import pytest

from numpy_attention.errors import (
    broadcasts_to,
    dtype_error,
    escaped,
    require_array,
    require_bools,
    require_choice,
    require_cotangent,
    require_float,
    require_generator,
    require_integers,
    require_number,
    require_size,
    require_sizes,
    several,
    short_repr,
    value_error,
)


@pytest.mark.parametrize(("error", "kind"), [
    (value_error, ValueError), (dtype_error, TypeError),
])
def test_every_error_is_one_sentence_with_a_fix_where_there_is_one(error: Any, kind: type[Exception]) -> None:
    assert type(error("op", "x", "this", "that")) is kind
    assert str(error("op", "x", "this", "that")) == "op: x must be this, got that"
    assert str(error("op", "x", "this", "that", "do so")) == "op: x must be this, got that; do so"


@pytest.mark.parametrize(("array", "message"), [
    ([1.0], r"x must be an array, got list; wrap it: np.asarray\(x\)"),
    (1.0, "x must be an array, got float"),
    (np.ones((1, 1)).view(np.matrix), r"x must be an array of NumPy or CuPy, got numpy.*matrix; convert it"),
    (np.ma.array([1.0], mask=[True]), "x must be an array of NumPy or CuPy, got .*MaskedArray"),
], ids=["list", "number", "matrix", "masked"])
def test_refuses_values_that_only_look_like_arrays(array: Any, message: str) -> None:
    require_array("op", "x", np.float32(1.0))
    with pytest.raises(TypeError, match=f"op: {message}"):
        require_array("op", "x", array)


def test_require_float_wants_one_dtype_and_accepts_none_for_optional_arguments() -> None:
    require_float("op", optional="w", x=np.ones(2), w=None, b=np.ones(3))
    with pytest.raises(TypeError, match=r"b must be float64, the dtype of x, got float32; convert it: b\.astype"):
        require_float("op", x=np.ones(2), b=np.ones(3, np.float32))
    with pytest.raises(TypeError, match="op: w must be an array of floats, got NoneType"):
        require_float("op", x=np.ones(2), w=None)
    for dtype in (np.int64, np.complex128, bool):
        with pytest.raises(TypeError, match="w must be an array of floats, got"):
            require_float("op", x=np.ones(2), w=np.ones(2, dtype))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(np.float64).newbyteorder()], ids=str)
def test_refuses_other_floats_and_swapped_bytes_and_names_a_supported_dtype(dtype: np.dtype[Any]) -> None:
    fix = "np.float32" if dtype.itemsize <= 4 else "np.float64"
    with pytest.raises(TypeError, match=rf"of float32 or float64, got {dtype}; .*x\.astype\({fix}\)"):
        require_float("op", x=np.ones(2, dtype))


def test_refuses_a_gradient_of_another_shape_or_dtype() -> None:
    require_cotangent("op", "dy", np.ones((2, 3)), (2, 3), np.float64)
    with pytest.raises(ValueError, match=r"dy must be \(3, 2\), the shape of the forward's result, got \(2, 3\)"):
        require_cotangent("op", "dy", np.ones((2, 3)), (3, 2), np.float64)
    with pytest.raises(TypeError, match="dy must be float32, as the forward's result, got float64"):
        require_cotangent("op", "dy", np.ones((2, 3)), (2, 3), np.dtype(np.float32))


def test_refuses_integers_outside_their_range() -> None:
    require_integers("op", "ids", np.array([[0, 4], [2, 1]]), below=5)
    require_integers("op", "ids", np.array([], np.int64), below=0)
    for ids, wrong in (([1, 5], 5), ([3, -2, 7], -2)):
        with pytest.raises(ValueError, match=rf"ids must be integers in \[0, 5\), got {wrong}; why"):
            require_integers("op", "ids", np.array(ids), below=5, fix="why")


def test_refuses_arrays_that_are_not_integers() -> None:
    for ids in (np.array([1.0]), np.array([True])):
        with pytest.raises(TypeError, match="ids must be an integer array, got"):
            require_integers("op", "ids", ids)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "3"), ("a\n", r"'a\n'"), (None, "None"), ([1] * 10**6, "a list"), ({}, "a dict"),
        ("x" * 5000, "'" + "x" * 76 + "..."), (float("nan"), "nan"),
    ],
    ids=["int", "text", "None", "list", "dict", "long text", "nan"],
)  # fmt: skip
def test_values_are_shown_in_short_form(value: Any, expected: str) -> None:
    assert short_repr(value) == expected


def test_long_list_of_mismatches_is_shortened_with_a_count() -> None:
    assert several(["a is missing", "b is missing"]) == "a is missing; b is missing"
    assert several(list("abcdefgh")) == "a; b; c; d; e; ... and 3 more"


def test_control_characters_are_escaped() -> None:
    assert escaped("a\x1b[31m\udc80\x07\nb") == "a\\x1b[31m\\udc80\\x07\nb"
    assert escaped("dx in float64, 5 × 3") == "dx in float64, 5 × 3"


@pytest.mark.parametrize(("limits", "words", "fine", "wrong"), [
    ({"at_least": 0, "below": 1}, r"in \[0, 1\)", (0, 0.5, np.float32(0.5)), (-0.1, 1, 1.0, 10**400)),
    ({"above": 0, "at_most": 1}, r"in \(0, 1\]", (1, 1e-300, np.int8(1)), (0.0, 1.5, np.float64(2.0))),
    ({"above": 0}, "above 0 and finite", (1e-5, 2**1000), (0, -1.0, 10**400)),
    ({"at_least": 1, "whole": True}, "at least 1", (1, np.uint64(2**63), 2**70), (0, np.int64(-1))),
    ({"at_most": 3}, "at most 3 and finite", (-5,), (4,)),
    ({}, "finite", (-1e308,), (-(10**400),)),
], ids=str)
def test_refuses_numbers_outside_their_limits(limits: Any, words: str, fine: Any, wrong: Any) -> None:
    for number in fine:
        require_number("op", "n", number, **limits)
    for number in wrong + (() if limits.get("whole") else (math.nan, math.inf, -math.inf, np.float32(np.nan))):
        with pytest.raises(ValueError, match=rf"op: n must be {words}, got .*; why"):
            require_number("op", "n", number, **limits, fix="why")


@pytest.mark.parametrize(("got", "expected"), [
    ("3", "'3'"), (None, "None"), (True, "True"), (2.5j, "a complex"), ([1.0], "a list"),
])
def test_refuses_values_that_are_not_numbers_and_names_their_type(got: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=f"op: n must be a number above 0 and finite, got {expected}"):
        require_number("op", "n", got, above=0)
    with pytest.raises(TypeError, match=f"op: n must be an integer at least 2, got {expected}; why"):
        require_size("op", "n", got, at_least=2, fix="why")


def test_error_for_a_seed_shows_how_to_make_a_generator() -> None:
    for rng in (None, np.random.default_rng(1)):
        require_generator("op", "rng", rng)
    with pytest.raises(TypeError, match=r"must be a np.random.Generator or None, got 7; np.random.default_rng\(7\)"):
        require_generator("op", "rng", 7)
    with pytest.raises(TypeError, match=r"got a RandomState; np\.random\.default_rng"):
        require_generator("op", "rng", np.random.RandomState(1))


def test_refuses_an_invalid_size_by_name() -> None:
    require_sizes("op", d_in=3, d_out=1)
    with pytest.raises(ValueError, match=r"^op: d_out must be at least 1, got 0$"):
        require_sizes("op", d_in=3, d_out=0)


def test_refuses_an_unknown_choice() -> None:
    require_choice("op", "kind", "a", {"a": 1, "b": 2})
    with pytest.raises(ValueError, match=r"^op: kind must be one of a, b, got 'c'$"):
        require_choice("op", "kind", "c", ("a", "b"))
    with pytest.raises(ValueError, match=r'^op: kind must be "a", the usual one, or "b", got None$'):
        require_choice("op", "kind", None, ("a", "b"), '"a", the usual one, or "b"')


def test_refuses_a_mask_of_integers() -> None:
    require_bools("op", "mask", np.ones(2, bool), "of bool")
    with pytest.raises(TypeError, match=r"^op: mask must be of bool, got int64; compare: mask > 0$"):
        require_bools("op", "mask", np.ones(2, np.int64), "of bool", "compare: mask > 0")
    with pytest.raises(TypeError, match=r"^op: mask must be a boolean array, got list; wrap it: np.asarray\(mask\)$"):
        require_bools("op", "mask", [True], "of bool", kind="a boolean array")


@pytest.mark.parametrize(("shape", "other", "fits"), [
    ((), (3, 5), True), ((5,), (3, 5), True), ((3, 1), (3, 5), True), ((1, 1), (3, 5), True),
    ((3,), (3, 5), False), ((2, 3, 5), (3, 5), False), ((3, 5), (1, 5), False), ((1, 3, 5), (3, 5), False),
])
def test_broadcasts_to_keeps_the_target_shape(shape: tuple[int, ...], other: tuple[int, ...], fits: bool) -> None:
    assert broadcasts_to(shape, other) == fits
