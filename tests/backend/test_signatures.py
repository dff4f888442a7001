"""CuPy has every `np.name(keyword=)` that the chapters call: checked in the sources, without running them."""

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backend.strict_rules import CUPY, bind
from tests.every import each

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "numpy_attention"
FILES = sorted(
    [path for part in ("ops", "layers", "models") for path in (PACKAGE / part).glob("*.py")]
    + [PACKAGE / "training" / "optimizers.py"]
)
# With like= these pass only the written arguments to CuPy; np.ones, np.full and np.eye add device=, which CuPy refuses.
MADE_LIKE = {"asarray", "asanyarray", "array", "arange", "empty", "zeros", "tri"}
# These never receive device arrays: they read a dtype or a shape. Nor do types, random draws and readers of files.
ON_HOST = {"dtype", "finfo", "iinfo", "errstate", "result_type", "shape", "ndim"}


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    """Every call of a NumPy function, with its name after `np.`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if re.fullmatch(r"np(\.\w+)+", name):
                found.append((name.removeprefix("np."), node))
    return found


def objection(name: str, call: ast.Call) -> str | None:
    """The reason why CuPy would refuse this call; None if CuPy accepts it."""
    keywords = {keyword.arg for keyword in call.keywords}
    if None in keywords or any(isinstance(arg, ast.Starred) for arg in call.args):
        return None  # f(*args, **options): cannot be checked without running
    base, _, method = name.partition(".")
    kind: Any = getattr(np, base)
    if name in ON_HOST or isinstance(kind, type) or name.startswith(("random.", "lib.format.")):
        return None
    if "like" in keywords:
        if name not in MADE_LIKE:
            return f"np.{name}(like=) passes a keyword that CuPy does not have"
        keywords.remove("like")
    if isinstance(kind, np.ufunc):
        if base not in CUPY["ufuncs"]:
            return f"CuPy has no np.{base}"
        if method:
            refused = keywords - {"axis", "dtype", "out", "keepdims"}
            methods = CUPY["ufuncs"][base]["methods"]
            return None if method in methods and not refused else f"CuPy has no np.{name}({', '.join(refused)})"
        parameters = CUPY["ufuncs"][base]["parameters"]
    elif name in CUPY["functions"]:
        parameters = CUPY["functions"][name]
    else:
        return f"CuPy has no np.{name}"
    try:
        bind(f"np.{name}", parameters, tuple(call.args), dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    return None


@each(FILES, lambda path: path.relative_to(PACKAGE).as_posix())
def test_cupy_has_every_function_and_keyword_of_a_chapter(path: Path) -> None:
    for name, call in calls(ast.parse(path.read_text("utf-8"))):
        found = objection(name, call)
        assert found is None, f"{path.relative_to(ROOT)}:{call.lineno}: {found}"


@each(FILES, lambda path: path.relative_to(PACKAGE).as_posix())
def test_cupys_arrays_have_every_method_of_a_chapter(path: Path) -> None:
    """A method that only NumPy's arrays have would fail only on a GPU."""
    numpys = {name for name in dir(np.ndarray) if not name.startswith("_")}
    missing = numpys - set(CUPY["methods"]) - set(CUPY["attributes"])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            assert owner == "np" or owner.startswith("np.") or node.func.attr not in missing, ast.unparse(node)


@pytest.mark.parametrize(
    "line",
    [
        "np.exp(x, where=mask)",
        "np.maximum.reduce(x)",
        "np.logical_and.reduce(x, axis=0)",
        "np.sum(x, initial=0.0)",
        "np.max(x, where=mask)",
        "np.clip(x, min=0.0, max=1.0)",
        "np.take(x, ids, mode='clip')",
        "np.vecdot(x, x)",
        "np.linalg.vector_norm(x)",
        "np.matmul(x, x, out=y)",
        "np.full((2, 3), 0.0, like=x)",
        "np.eye(3, like=x)",
        "np.add.reduce(x, initial=0.0)",
        "np.var(x, mean=m)",
        "np.piecewise(x, a, b, c, d, e, f, nothing=1)",
    ],
)
def test_check_refuses_calls_that_cupy_does_not_have(line: str) -> None:
    (name, call), = calls(ast.parse(line))
    assert objection(name, call) is not None


@pytest.mark.parametrize(
    "line",
    [
        "np.add.at(dtable, ids, dy)",
        "np.copyto(scores, -np.inf, where=~mask)",
        "np.exp(x, out=x)",
        "np.einsum('...i,...i->...', x, y)",
        "np.zeros((2, 3), like=x)",
        "np.linalg.norm(x, axis=-1)",
        "np.float32(1.0)",
    ],
)
def test_check_accepts_calls_that_cupy_has(line: str) -> None:
    (name, call), = calls(ast.parse(line))
    assert objection(name, call) is None


def test_recorded_signatures_come_from_cupy() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", CUPY["versions"]["cupy"])
    assert len(CUPY["functions"]) > 200
    assert CUPY["ufuncs"]["add"]["methods"] == ["reduce", "accumulate", "reduceat", "at", "outer"]
    assert CUPY["ufuncs"]["maximum"]["methods"] == ["at", "outer"]
