"""Error messages: the function, the argument, the expected value, the given value, and a likely fix."""

import math
from typing import Any

import numpy as np
import pytest

from numpy_attention.errors import (
    dtype_error,
    escaped,
    require_array,
    require_float,
    require_number,
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


def test_control_characters_are_escaped() -> None:
    assert escaped("a\x1b[31m\udc80\x07\nb") == "a\\x1b[31m\\udc80\\x07\nb"
    assert escaped("dx in float64, 5 × 3") == "dx in float64, 5 × 3"


@pytest.mark.parametrize(("limits", "words", "fine", "wrong"), [
    ({"at_least": 0, "below": 1}, r"in \[0, 1\)", (0, 0.5, np.float32(0.5)), (-0.1, 1, 1.0, 10**400)),
    ({"above": 0, "at_most": 1}, r"in \(0, 1\]", (1, 1e-300, np.int8(1)), (0.0, 1.5, np.float64(2.0))),
    ({"at_least": 1, "whole": True}, "at least 1", (1, np.uint64(2**63), 2**70), (0, np.int64(-1))),
], ids=str)
def test_refuses_numbers_outside_their_limits(limits: Any, words: str, fine: Any, wrong: Any) -> None:
    for number in fine:
        require_number("op", "n", number, **limits)
    for number in wrong + (() if limits.get("whole") else (math.nan, math.inf, -math.inf, np.float32(np.nan))):
        with pytest.raises(ValueError, match=rf"op: n must be {words}, got .*; why"):
            require_number("op", "n", number, **limits, fix="why")
