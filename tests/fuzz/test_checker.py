"""The checker with odd functions, backwards, inputs and options: it reports, or refuses with one of its errors.

Errors of the function are passed on unchanged. A wrong backward is never called right.
"""

import copy
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.gradcheck import GradientError, Report, gradcheck
from tests.fuzz.attack import attack, tally
from tests.fuzz.judging import PACKAGE, Finding, alike, bounded, require_our_error
from tests.fuzz.odd_values import KINDS, LAYOUTS, SHAPES, VALUES, Subclass, make_odd

X = np.random.default_rng(2).standard_normal((2, 3))
LOCK = threading.Lock()
CALLS = [0]


class Theirs(Exception):
    """An error of the function under check."""


def fails(*_: Any) -> Any:
    raise Theirs("this function fails\nin two lines")


def sometimes(x: Any) -> Any:
    CALLS[0] += 1
    if CALLS[0] % 7 == 0:
        raise Theirs("now and then")
    return x * x, x


def in_place(x: Any) -> Any:
    x *= x
    return x, x


def with_a_thread(x: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: x * x).result(), x


def with_a_lock(x: Any) -> Any:
    with LOCK:
        return x * x, (x, LOCK)


def printing(x: Any) -> Any:
    print("\ud800", x, "\x1b[31m")
    return x * x, x


def remembering(x: Any) -> Any:
    CALLS[0] += 1
    return x * x + CALLS[0], x


def recursion(x: Any) -> Any:
    return recursion(x)


CYCLIC: list[Any] = [X]
CYCLIC.append(CYCLIC)
FORWARDS: dict[str, Callable[..., Any]] = {
    "right": lambda x: (x * x, x), "fails": fails, "sometimes": sometimes, "in place": in_place,
    "with a thread": with_a_thread, "with a lock": with_a_lock, "printing": printing, "remembering": remembering,
    "None": lambda x: None, "y alone": lambda x: x * x, "of one": lambda x: (x * x,), "of three": lambda x: (x, x, x),
    "list": lambda x: [x * x, x], "no y": lambda x: (None, x), "text": lambda x: ("text", x), "dict": lambda x: ({}, x),
    "tree": lambda x: ({"a": x * x, "b": [x, (None, 3)]}, x), "numbers": lambda x: ((x * x).tolist(), x),
    "ragged": lambda x: ([x * x, [x, [x]]], x), "nothing": lambda x: ((), x),
    "whole": lambda x: ((x * 3).astype(int), x),
    "objects": lambda x: ((x * x).astype(object), x), "texts": lambda x: (np.array(["x", "y"]), x),
    "sum": lambda x: ((x * x).sum(), x), "number": lambda x: (float((x * x).sum()), x), "x itself": lambda x: (x, x),
    "nan": lambda x: (x * np.nan, x), "inf": lambda x: (x / 0.0, x), "huge": lambda x: (x * 1e308 * 10, x),
    "tiny": lambda x: (x * 1e-310, x), "jump": lambda x: (np.floor(x * 1e3), x),
    "half": lambda x: (np.float16(x * x), x),
    "longdouble": lambda x: (np.asarray(x * x, np.longdouble), x), "complex": lambda x: (x * x * 1j, x),
    "empty": lambda x: (x[:0], x), "broadcast": lambda x: (np.broadcast_to((x * x).sum(), (3, 3)), x),
    "random": lambda x: (x * np.random.default_rng().random(), x), "subclass": lambda x: ((x * x).view(Subclass), x),
    "masked": lambda x: (np.ma.masked_less(x * x, 0.5), x), "generator": lambda x: ((one for one in x), x),
    "other shapes": lambda x: (np.zeros(CALLS.append(0) or len(CALLS) % 5 + 1) * x.sum(), x),
    "lambda cache": lambda x: (x * x, lambda: x), "cyclic": lambda x: (CYCLIC, x),
    "recursion": recursion,
}
BACKWARDS: dict[str, Callable[..., Any]] = {
    "right": lambda dy, x: 2 * x * dy, "zeros": lambda dy, x: 0 * x, "forgets 2": lambda dy, x: x * dy, "fails": fails,
    "None": lambda dy, x: None, "nan": lambda dy, x: x * np.nan, "text": lambda dy, x: "text",
    "(None,)": lambda dy, x: (None,),
    "object": lambda dy, x: object(), "list": lambda dy, x: (2 * x * dy).tolist(),
    "dict": lambda dy, x: {"x": 2 * x * dy},
    "other name": lambda dy, x: {"z": x}, "number key": lambda dy, x: {1: x}, "of two": lambda dy, x: (x, x),
    "()": lambda dy, x: (),
    "[]": lambda dy, x: [], "{}": lambda dy, x: {}, "number": lambda dy, x: 1.0,
    "wide": lambda dy, x: (2 * x * dy)[None],
    "flat": lambda dy, x: (2 * x * dy).reshape(-1), "sum": lambda dy, x: (2 * x * dy).sum(),
    "whole": lambda dy, x: (x * 9).astype(int),
    "objects": lambda dy, x: (2 * x * dy).astype(object), "complex": lambda dy, x: 2j * x * dy,
    "half": lambda dy, x: np.float16(2 * x * dy),
    "subclass": lambda dy, x: (2 * x * dy).view(Subclass),
    "read-only": lambda dy, x: np.broadcast_to(2 * x * dy, np.shape(x)),
    "dy itself": lambda dy, x: dy, "in place": lambda dy, x: np.multiply(dy, 2 * x, out=dy),
    "a class": lambda dy, x: Theirs, "None without dy": lambda dy, x: 2 * x * dy if np.any(dy) else None,
    **{
        f"{name} later": lambda dy, x, odd=odd: 2 * x * dy if CALLS.append(0) or len(CALLS) < 6 else odd
        for name, odd in {"text": "text", "None": None, "object": object(), "wide": X[None], "whole": 0}.items()
    },
    "inf": lambda dy, x: x / 0.0, "ragged": lambda dy, x: [[1.0], [1.0, 2.0]],
    "texts": lambda dy, x: np.array([["x"] * 3] * 2),
    "three arguments": lambda dy, x, z: x, "no arguments": lambda: None,
    "masked": lambda dy, x: np.ma.masked_less(2 * x * dy, 0.5),
}
WRONG = {
    "zeros", "forgets 2", "nan", "text", "object", "other name", "of two", "number", "wide", "whole", "dy itself",
    "inf",
}
INPUTS: dict[str, Any] = {
    "right": {"x": X}, "tuple": (X,), "list": [X], "array": X, "None": None, "empty": {}, "()": (), "text": "x",
    "number": {"x": 2.0},
    "other name": {"z": X}, "number key": {1: X}, "two": {"x": X, "z": X}, "two in order": (X, X),
    "tree": {"x": {"a": X}},
    "None inside": {"x": None}, "text inside": {"x": "x"}, "list inside": {"x": X.tolist()}, "a set": {"x"},
    "cyclic": {"x": []},
    **{f"x {name}": {"x": make_odd("array", X, name)} for name in (*LAYOUTS, *SHAPES, *VALUES)},
    **{f"x {name}": {"x": X.astype(kind)} for name, kind in KINDS.items()},
}
INPUTS["cyclic"]["x"].append(INPUTS["cyclic"]["x"])
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {}, **{f"reference {one!r}": {"reference": one} for one in ("complex", "differences", "nope", None, 3, [])},
    **{f"seed {one!r}": {"seed": one} for one in (1, -1, 1.5, 2**64, "x", None, np.int64(3), True, float("nan"))},
    **{f"no_gradient {one!r}": {"no_gradient": one} for one in ("x", ["x"], "nope", [3], 3, None, [[]], "")},
    **{f"rtol {one!r}": {"rtol": one} for one in (-1.0, float("nan"), float("inf"), "x", None, 1j)},
    **{f"atol {one!r}": {"atol": one} for one in (-1.0, float("nan"), float("inf"), "x", None, 1j)},
    **{f"options {one!r}": {"options": one} for one in ({}, {"a": 1}, {1: 2}, 3, "x", [], {"x": 1})},
    "more": {"nope": 1},
}
WILD = {  # a type checker would refuse these
    *(name for name in OPTIONS if name.startswith(("options", "more"))), "seed 1.5", "seed 'x'", "seed None",
    "seed nan", "no_gradient 3", "no_gradient None",
    *(f"{name} {one}" for name in ("rtol", "atol") for one in ("'x'", "None", "1j")),
    "two in order", "three arguments", "no arguments",
}
LENIENT = ("rtol", "atol", "no_gradient")
NAMES = {"gradcheck", "reference", "seed", "no_gradient", "rtol", "atol", "options", "inputs", "x"}


@st.composite
def problems(draw: st.DrawFn) -> tuple[str, str, str, str]:
    """The names of a forward, a backward, inputs and options; at least two of the four are good."""
    tables: list[Any] = [FORWARDS, BACKWARDS, INPUTS, OPTIONS]
    odd = draw(st.sets(st.integers(0, 3), min_size=1, max_size=2))
    forward, backward, inputs, options = (
        draw(st.sampled_from(sorted(table))) if i in odd else next(iter(table)) for i, table in enumerate(tables)
    )
    return forward, backward, inputs, options


@attack(count=120)
@given(problems())
@example(("right", "whole", "right", "none"))
@example(("right", "texts", "right", "none"))
@example(("right", "None without dy", "right", "none"))
@example(("right", "text later", "right", "none"))
@example(("sometimes", "right", "x big", "none"))
@example(("cyclic", "right", "right", "none"))
@example(("in place", "right", "right", "none"))
@example(("right", "right", "right", "atol nan"))
@example(("right", "right", "right", "seed -1"))
def test_the_checker_reports_or_refuses_odd_problems(problem: tuple[str, str, str, str]) -> None:
    given = copy.deepcopy(INPUTS[problem[2]])
    judge(*problem, given)
    if problem[2] != "cyclic" and not alike(given, INPUTS[problem[2]]):
        raise Finding("the arrays of the caller have changed")


def judge(forward: str, backward: str, inputs: str, options: str, given: Any) -> None:
    """Check one odd problem, whose inputs are `given`.

    Raises: Finding.
    """
    CALLS[:] = [0]
    try:
        with bounded(20), warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            report = gradcheck(FORWARDS[forward], BACKWARDS[backward], given, **OPTIONS[options])
    except GradientError as error:
        if not str(error).startswith("gradcheck"):
            raise Finding(f"a report that does not begin with gradcheck and a name: {str(error)[:200]!r}") from error
        tally("the checker", "reported")
    except Theirs:
        tally("the checker", "raised what the function raised")
    except Finding:
        raise
    except (Exception, SystemExit) as error:
        places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        ours = [place for place in places if place == __file__ or place.startswith(PACKAGE)]
        if ours[-1] == __file__:  # a function of this file, or a function that it called
            tally("the checker", "raised what the function raised")
            return
        if isinstance(error, (TypeError, ValueError)) and WILD & {options, inputs, backward}:
            tally("the checker", "refused, by Python perhaps")
            return
        require_our_error(error, NAMES)
        tally("the checker", "refused")
    else:
        if not isinstance(report, Report) or not report.ok:
            raise Finding(f"neither right nor an error: {report!r}"[:200])
        if backward in WRONG and (forward, inputs) == ("right", "right") and not options.startswith(LENIENT):
            raise Finding(f"a wrong backward is called right: {backward}")
        tally("the checker", "right")
