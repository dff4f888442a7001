"""A line of shapes: arrays drawn from it fit, changed arrays are refused with the likely fix, docstrings repeat it."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck.spec import draw_example
from numpy_attention.ops.c06_attention import SHAPES
from numpy_attention.shapes import check_shapes, in_words, parse
from tests.every import each

CHAPTERS = [importlib.import_module(f"numpy_attention.ops.{file.stem}") for file in Path(ops.__path__[0]).glob("[!_]*")
            if file.suffix == ".py"]


def lines() -> Iterator[tuple[str, str]]:
    """Each op of Part I with the line of its chapter."""
    for chapter in CHAPTERS:
        found = getattr(chapter, "SHAPES", {})
        public = [name for name in ops.__all__ if getattr(ops, name).__module__ == chapter.__name__]
        named = {name: found for name in public if f"{name}_backward" in public} if isinstance(found, str) else found
        yield from named.items()


LINES = dict(lines())


@each(LINES)
def test_arrays_drawn_from_a_line_fit_the_line(name: str) -> None:
    for seed in range(20):
        check_shapes(name, LINES[name], **draw_example(LINES[name], seed))


@each(LINES)
def test_a_longer_axis_another_dtype_and_a_list_are_refused(name: str) -> None:
    spec = parse(LINES[name])
    arrays = draw_example(LINES[name], 0)
    for argument in [one for one in spec.arguments if arrays[one.name] is not None]:
        x = arrays[argument.name]
        wrong: list[Any] = [x.tolist()]
        for axis, dim in enumerate(argument.dims[::-1], 1):
            given = [one for one in spec.arguments if arrays[one.name] is not None and not one.broadcast]
            shared = sum(dim in one.dims for one in given)
            if dim != "..." and shared > 1 and x.ndim >= axis:
                wrong.append(np.repeat(x, x.shape[-axis] + 1, axis=-axis))
        if argument.kind == "float":
            wrong.append(x.astype(int))
        for one in wrong:
            with pytest.raises((TypeError, ValueError), match=f"^{name}: .* must be .*, got "):
                check_shapes(name, LINES[name], **{**arrays, argument.name: one})


@each(LINES)
def test_docstring_repeats_the_line(name: str) -> None:
    text = " ".join((inspect.getdoc(getattr(na, name)) or "").split())
    for argument in parse(LINES[name]).arguments:
        any_shape = argument.dims == ("...",)
        assert any_shape or argument.broadcast or argument.axes in text, argument


Q, K, V = np.ones((2, 6, 5, 8)), np.ones((2, 3, 7, 8)), np.ones((2, 3, 7, 4))


@pytest.mark.parametrize(("change", "message"), [
    ({"k": K.swapaxes(-1, -2)}, r"k must be .*, T_k, d_k\) with d_k = 8 as in q .*; did you pass k transposed"),
    ({"k": K[:, [0, 1, 0, 1]], "v": V[:, [0, 1, 0, 1]]}, r"with H_kv a divisor of H_q = 6 as in q \(2, 6, 5, 8\)"),
    ({"k": K[:, :, :0], "v": V[:, :, :0]}, "with T_k at least 1, got"),
    ({"v": V[:, :, 1:]}, "v must be .* with T_k = 7 as in k"),
    ({"mask": np.ones((5, 7))}, "mask must be boolean, True = may look, got float64; use another function"),
    ({"mask": np.ones((7, 5), bool)}, "did you pass mask transposed"),
    ({"mask": np.ones((2, 7), bool)}, r"each row belongs to one sequence, .* axes: mask\[:, None, None, :\]"),
    ({"mask": np.ones((2, 6, 5), bool)}, r"add the last axis: mask\[\.\.\., None\]"),
    ({"mask": np.ones((1, 2, 1, 1, 7), bool)}, "if one is the axis of heads, remove it"),
    ({"sink": np.ones(5)}, r"sink must be \(H_q,\) with H_q = 6"),
    ({"q": Q.tolist()}, "q must be an array of floats, got list; wrap it"),
    ({"k": K.astype(np.float32)}, "k must be float64, the dtype of q"),
    ({"k": None}, "k must be an array of floats, got NoneType"),
], ids=str)
def test_message_names_argument_sizes_and_fix(change: dict[str, Any], message: str) -> None:
    arrays = {"q": Q, "k": K, "v": V, "mask": None, "bias": None, "sink": None, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        check_shapes("attention", SHAPES, fixes={"mask: bool": "use another function"}, **arrays)


def test_integers_are_below_the_size_or_equal_to_the_extra_value() -> None:
    line = "x: ... V, ids: int<V|-1> ..."
    check_shapes("f", line, x=np.ones((2, 5)), ids=np.array([4, -1]))
    check_shapes("f", line, extra=9, x=np.ones((2, 5)), ids=np.array([4, 9]))
    with pytest.raises(ValueError, match=r"f: ids must be integers in \[0, 5\), got 5; a hint"):
        check_shapes("f", line, fixes={"V": "a hint"}, x=np.ones((2, 5)), ids=np.array([4, 5]))


@pytest.mark.parametrize(
    "line", ["x: d, y: 2*d", "x: T ... d", "x: d, ids: int<4> T", "x: d, ids: int<d+1> T", "x: complex d"])
def test_refuses_a_line_that_it_cannot_check(line: str) -> None:
    arrays = {one.name: np.ones(4) if one.kind != "int" else np.ones(4, int) for one in parse(line).arguments}
    with pytest.raises(ValueError, match="check_shapes: cannot check"):
        check_shapes("f", line, **arrays)


def test_conditions_between_sizes() -> None:
    line = "x: H, y: G, z: m; H = G*K; H = m+1"
    check_shapes("f", line, x=np.ones(6), y=np.ones(3), z=np.ones(5))
    check_shapes("f", "x: 3, y: A, z: B; A = B", x=np.ones(3), y=np.ones(2), z=np.ones(2))
    for change, message in (
        ({"y": np.ones(4)}, r"y must be \(G,\) with G a divisor of H = 6 as in x \(6,\), got \(4,\)"),
        ({"z": np.ones(4)}, r"z must be \(m,\) with m = 5 as in x \(6,\), got \(4,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            check_shapes("f", line, **{"x": np.ones(6), "y": np.ones(3), "z": np.ones(5), **change})
    with pytest.raises(ValueError, match=r"x must be \(3,\), got \(2,\)"):
        check_shapes("f", "x: 3", x=np.ones(2))
    with pytest.raises(ValueError, match="a divisor of H"):
        check_shapes("f", "h: H, a: A, b: B; H = A*B", h=np.ones(8), a=np.ones(2), b=np.ones(2))


def test_drawn_sizes_keep_the_minima_of_their_line() -> None:
    for seed in range(40):
        assert draw_example("x: B d; d >= 4", seed)["x"].shape[1] >= 4


def test_arrays_without_heads_or_axes(rng: np.random.Generator) -> None:
    q, k, v = np.ones((2, 0, 3, 4)), np.ones((2, 0, 5, 4)), np.ones((2, 0, 5, 2))
    assert na.scaled_dot_product_attention(q, k, v)[0].shape == (2, 0, 3, 2)
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    y, cache = na.linear_attention(q, k, v, decay=np.array(-0.5))
    np.testing.assert_allclose(y, na.linear_attention(q, k, v, decay=np.full((5, 1), -0.5))[0])
    assert na.linear_attention_backward(np.ones_like(y), cache)[3].shape == ()


def test_three_axes_have_no_grouped_heads_also_with_a_sink() -> None:
    with pytest.raises(ValueError, match=r"k must be .* with the leading axes"):
        na.scaled_dot_product_attention(np.ones((6, 3, 4)), np.ones((3, 5, 4)), np.ones((3, 5, 2)), sink=np.ones(6))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: na.negative_log_likelihood(np.ones((2, 3, 7)), np.zeros((2, 3), int), class_weights=np.ones(6)),
     r"class_weights must be .* with V = 7 as in log_probs \(2, 3, 7\), got \(6,\); one weight for each class"),
    (lambda: na.sigmoid_gate(np.ones((2, 3)), np.ones((3, 2))), "one gate for each head"),
    (lambda: na.linear_attention(*np.ones((3, 2, 1, 7, 4)), state=np.ones((3, 1, 4, 4))), "pass cache.state of the"),
    (lambda: na.scaled_dot_product_attention(np.ones((2, 5)), np.ones(5), np.ones(5)), "k must be .* with 2 axes as"),
], ids=["class weights", "gate", "state", "axes"])
def test_hint_belongs_to_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_line_in_words() -> None:
    assert in_words(SHAPES).startswith("q (..., H_q, T_q, d_k), k (..., H_kv, T_k, d_k)")
    assert in_words("ids: int<V> B T") == "ids (B, T) of integers in [0, V)"


@pytest.mark.parametrize("line", ["x: ... T; T > 0", "x: ... T; >= 1", "x: T ; T >= x"])
def test_refuses_a_condition_it_cannot_read(line: str) -> None:
    with pytest.raises(ValueError, match="spec: "):
        parse(line)
