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
from numpy_attention.shapes import check_shapes, parse
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
    ({"mask": np.ones((5, 7))}, "mask must be boolean, True = may look, got float64; use another function"),
    ({"mask": np.ones((7, 5), bool)}, "did you pass mask transposed"),
    ({"mask": np.ones((2, 7), bool)}, r"each row belongs to one sequence, .* axes: mask\[:, None, None, :\]"),
    ({"q": Q.tolist()}, "q must be an array of floats, got list; wrap it"),
], ids=str)
def test_message_names_argument_sizes_and_fix(change: dict[str, Any], message: str) -> None:
    arrays = {"q": Q, "k": K, "v": V, "mask": None, "bias": None, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        check_shapes("attention", SHAPES, fixes={"mask: bool": "use another function"}, **arrays)


def test_integers_are_below_the_size_or_equal_to_the_extra_value() -> None:
    line = "x: ... V, ids: int<V|-1> ..."
    check_shapes("f", line, x=np.ones((2, 5)), ids=np.array([4, -1]))
    check_shapes("f", line, extra=9, x=np.ones((2, 5)), ids=np.array([4, 9]))
    with pytest.raises(ValueError, match=r"f: ids must be integers in \[0, 5\), got 5; a hint"):
        check_shapes("f", line, fixes={"V": "a hint"}, x=np.ones((2, 5)), ids=np.array([4, 5]))


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


def test_a_call_that_fitted_lets_no_other_call_pass():
    """Calls with equal shapes are checked once; another dtype, mask, list or id is still refused."""
    x, w, ids = np.zeros((5, 3)), np.zeros((3, 2)), np.array([1, 4])
    for _ in range(2):
        check_shapes("op", "x: T d, w?: d n", x=x, w=w)
        check_shapes("op", "x: T d, w?: d n", x=x, w=None)
        check_shapes("op", "ids: int<V> n, table: V d", ids=ids, table=x)
    with pytest.raises(TypeError, match="w must"):
        check_shapes("op", "x: T d, w?: d n", x=x, w=w.astype(np.float32))
    with pytest.raises(TypeError, match="x must"):
        check_shapes("op", "x: T d, w?: d n", x=x.astype(int), w=w)
    with pytest.raises(TypeError, match="w must"):
        check_shapes("op", "x: T d, w?: d n", x=x, w=w.tolist())
    with pytest.raises(ValueError, match="w must"):
        check_shapes("op", "x: T d, w?: d n", x=x, w=w.T)
    with pytest.raises(ValueError, match=r"(x|w) must"):
        check_shapes("op", "x: T d, w?: n d", x=x, w=w)
    with pytest.raises(ValueError, match="ids must"):
        check_shapes("op", "ids: int<V> n, table: V d", ids=ids + 1, table=x)
