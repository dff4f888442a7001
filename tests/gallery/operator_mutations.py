"""Operator mutations of the chapters: change one operator of an op's source at a time, and ask who notices.

    PYTHONPATH=. python tests/gallery/operator_mutations.py            all of ops/, with the survivors
    PYTHONPATH=. python tests/gallery/operator_mutations.py softmax    one chapter

Kinds: sign (- for +, a minus lost), factor (/ for *), term (one side of a sum or product alone), transpose (left out),
axis (the first for the last), call (np.subtract for np.add), number (doubled), compare (<= for <). The checks of
arguments are left alone: what they refuse is tested elsewhere. A mutation is killed when a property of the catalogue
fails for the op, or, for what has no backward, when its values change: masks, positions and erf are held to formulas.
"""

import ast
import copy
import importlib
import math
import re
import signal
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.catalogue import CATALOGUE
from numpy_attention.gradcheck.entry import Entry
from numpy_attention.gradcheck.mutants.more_properties import KILLERS, failure
from numpy_attention.gradcheck.properties import PROPERTIES

OPS = Path(__file__).parents[2] / "numpy_attention" / "ops"
CHAPTERS = (
    "linear", "embedding", "positions", "softmax", "masks", "attention", "heads", "normalization", "activations",
    "erf", "dropout", "losses", "tiled_attention",
)  # fmt: skip
FLOAT32 = PROPERTIES["float32_gradients_agree_with_float64_differences"]
SECONDS = 60  # a mutation that runs longer has made an endless loop

PLACES = (ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Call, ast.Attribute, ast.Compare, ast.Constant)
CALLS = {"np.add": "np.subtract", "np.multiply": "np.divide", "np.maximum": "np.minimum"}
CALLS |= {after: before for before, after in CALLS.items()}
SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
COMPARES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


class Mutation(NamedTuple):
    """One change: where, of which kind, from what to what, and the changed source."""

    chapter: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    tree: ast.Module


def mutations(chapter: str) -> Iterator[Mutation]:
    """All mutations of a chapter, in order of its lines."""
    tree = ast.parse((OPS / f"{chapter}.py").read_text())
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        if function.name.startswith(("_check", "_lengths", "_fits")):
            continue
        for node in _places(function):
            for kind, changed in _changes(node):
                before, after = ast.unparse(node), ast.unparse(changed)
                if before != after:
                    new = _replaced(tree, node, changed)
                    yield Mutation(chapter, function.name, node.lineno, kind, before, after, new)


def _places(function: ast.FunctionDef) -> Iterator[Any]:
    """Expressions and in-place steps of a body, but not those of checks that raise, docstrings or annotations."""

    def walk(node: ast.AST) -> Iterator[Any]:
        if isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in ast.walk(node)):
            return
        if isinstance(node, (ast.Raise, ast.arguments, ast.FunctionDef, ast.Assert)):
            return
        if isinstance(node, ast.Expr) and re.match(r"_?(require|check)", ast.unparse(node)):
            return
        if isinstance(node, PLACES):
            yield node
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    for statement in function.body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield from walk(statement)


def _changes(node: Any) -> Iterator[tuple[str, Any]]:
    changed = copy.deepcopy(node)
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
        changed.op = SWAPS[type(node.op)]()
        yield ("sign" if isinstance(node.op, (ast.Add, ast.Sub)) else "factor"), changed
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield "term", node.left
        yield "term", node.right
    if isinstance(node, ast.AugAssign):
        yield "term", ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert, ast.Not)):
        yield "sign", node.operand
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield "transpose", node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "swapaxes":
        yield "transpose", node.func.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
        changed.func = ast.parse(CALLS[ast.unparse(node.func)], mode="eval").body
        yield "call", changed
    if isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg == "axis" and ast.unparse(keyword.value) in ("-1", "0"):
                one = copy.deepcopy(node)
                one.keywords[i].value = ast.Constant(0 if ast.unparse(keyword.value) == "-1" else -1)
                yield "axis", one
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        changed.value = 2 * node.value if node.value else type(node.value)(1)
        yield "number", changed
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARES:
        changed.ops[0] = COMPARES[type(node.ops[0])]()
        yield "compare", changed


def _replaced(tree: ast.Module, node: ast.AST, changed: ast.AST) -> ast.Module:
    """A copy of the tree with one node changed."""

    class Replace(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> Any:
            return copy.deepcopy(changed) if one is node else self.generic_visit_copy(one)

        def generic_visit_copy(self, one: ast.AST) -> ast.AST:
            fields = {}
            for name, value in ast.iter_fields(one):
                if isinstance(value, list):
                    fields[name] = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]
                else:
                    fields[name] = self.visit(value) if isinstance(value, ast.AST) else value
            return ast.copy_location(type(one)(**fields), one)

    return ast.fix_missing_locations(Replace().visit(tree))


def killed_by(mutation: Mutation) -> str:
    """Which property notices; empty when none does."""
    module = types.ModuleType(f"numpy_attention.ops.{mutation.chapter}")
    module.__package__ = "numpy_attention.ops"

    def out_of_time(*_: Any) -> None:
        raise TimeoutError("an endless loop")

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(SECONDS)
    try:
        with np.errstate(all="ignore"):
            exec(compile(mutation.tree, f"{mutation.chapter}.py", "exec"), module.__dict__)
            return _values_changed(module, mutation) or _property_fails(module, mutation)
    except Exception as error:
        return f"stops with {type(error).__name__}"
    finally:
        signal.alarm(0)


def _property_fails(module: types.ModuleType, mutation: Mutation) -> str:
    original = importlib.import_module(f"numpy_attention.ops.{mutation.chapter}")
    entries = [
        replace(entry, op=getattr(module, entry.covers), op_backward=getattr(module, f"{entry.covers}_backward"))
        for entry in CATALOGUE.values()
        if entry.build is None and hasattr(original, entry.covers) and _concerns(mutation, entry, original)
    ]
    cheap_first = sorted(entries, key=lambda entry: len(entry.spec))
    for seed in (0, 1, 2):
        for property_ in (*KILLERS, FLOAT32):
            for entry in cheap_first:
                if failure(property_, entry, seed):
                    return f"{property_.__name__}, {entry.name}"
    return ""


def _concerns(mutation: Mutation, entry: Entry, original: types.ModuleType) -> bool:
    """A public function concerns its own entries; a helper all entries of the chapter."""
    public = {name for name in vars(original) if f"{name}_backward" in vars(original)}
    own = mutation.function.removesuffix("_backward")
    return own not in public or entry.covers == own


def _values_changed(module: types.ModuleType, mutation: Mutation) -> str:
    """What has no backward is held to plain formulas."""
    for name, trial in VALUES.items():
        if hasattr(module, name) and mutation.chapter == VALUE_CHAPTERS[name]:
            try:
                trial(getattr(module, name))
            except AssertionError:
                return f"values of {name}"
    return ""


def _masks(make: Any, rule: Any, *options: Any) -> None:
    for T_q, T_k in ((3, None), (4, 4), (2, 5), (5, 2), (1, 4)):
        mask = make(T_q, *options, *(() if T_k is None else (T_k,)))
        T_k = T_k or T_q
        expected = [[rule(i + T_k - T_q, j) for j in range(T_k)] for i in range(T_q)]
        assert mask.dtype == bool
        assert mask.tolist() == expected


def _sinusoids(make: Any) -> None:
    for length, d in ((5, 6), (3, 5), (1, 1)):
        table = make(length, d, np.float64)
        for t in range(length):
            for i in range(d):
                angle = t * 10000 ** (-2 * (i // 2) / d)
                assert math.isclose(table[t, i], math.cos(angle) if i % 2 else math.sin(angle), abs_tol=1e-12)


def _rotations(make: Any) -> None:
    rng = np.random.default_rng(0)
    for pairing in ("half", "interleaved"):
        x, positions = rng.standard_normal((3, 6)), np.array([0, 7, 3])
        y, _ = make(x, positions, base=50.0, pairing=pairing)
        for t, place in enumerate(positions):
            for i in range(3):
                a, b = (i, i + 3) if pairing == "half" else (2 * i, 2 * i + 1)
                turned = (x[t, a] + 1j * x[t, b]) * np.exp(1j * place * 50.0 ** (-2 * i / 6))
                assert np.allclose([y[t, a], y[t, b]], [turned.real, turned.imag])


def _slopes(make: Any) -> None:
    assert np.allclose(make(8), [2.0**-h for h in range(1, 9)])
    assert np.allclose(make(2), [2.0**-4, 2.0**-8])
    assert np.allclose(make(6), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])


def _alibi(make: Any) -> None:
    for T_q, T_k in ((3, None), (2, 4)):
        bias = make(2, T_q, T_k, np.float64)
        K = T_k or T_q
        for h, i, j in np.ndindex(2, T_q, K):
            assert math.isclose(bias[h, i, j], -(2.0 ** (-4 * (h + 1))) * abs(i + K - T_q - j), abs_tol=1e-15)


def _padding(make: Any) -> None:
    mask = make(np.array([0, 2, 3]), 3)
    assert mask.shape == (3, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[False] * 3, [True, True, False], [True] * 3]
    assert make([1], 2)[0, 0, 0].tolist() == [True, False]


def _erf(erf: Any) -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, 1e-300, -1e-9, 30.0, -40.0, 0.5, 1.0, 2.0, 4.0]])
    exact = np.array([math.erf(t) for t in x])
    assert np.max(np.abs(erf(x) - exact)) <= 1e-15
    assert erf(x.astype(np.float32)).dtype == np.float32


def _blocked(adapt: Any) -> None:
    assert adapt(np.array([[0, 1], [1, 0]])).tolist() == [[True, False], [False, True]]


def _additive(adapt: Any) -> None:
    assert adapt(np.array([0.0, -1e9, -np.inf, -1e4])).tolist() == [True, False, False, False]


VALUES: dict[str, Any] = {
    "causal_mask": lambda make: _masks(make, lambda at, j: j <= at),
    "sliding_window_mask": lambda make: _masks(make, lambda at, j: at - 2 < j <= at, 2),
    "padding_mask": _padding, "mask_from_blocked": _blocked, "mask_from_additive": _additive,
    "sinusoidal_positions": _sinusoids, "rotary": _rotations, "alibi_slopes": _slopes, "alibi_bias": _alibi,
    "erf": _erf,
}  # fmt: skip
VALUE_CHAPTERS = dict.fromkeys(VALUES, "masks") | {
    "sinusoidal_positions": "positions", "rotary": "positions", "alibi_slopes": "positions", "alibi_bias": "positions",
    "erf": "erf",
}  # fmt: skip


def main(chapters: list[str]) -> None:
    """A line a chapter, then the survivors."""
    survivors, count, started = [], 0, time.perf_counter()
    for chapter in chapters or CHAPTERS:
        found = list(mutations(chapter))
        alive = [mutation for mutation in found if not killed_by(mutation)]
        survivors += alive
        count += len(found)
        print(f"{chapter:<16} {len(found) - len(alive):>3} of {len(found):>3} killed", flush=True)
    print(f"{count - len(survivors)} of {count} killed, {time.perf_counter() - started:.0f} s")
    for one in survivors:
        print(f"{one.chapter}.py:{one.line} {one.function}, {one.kind}: {one.before}  ->  {one.after}")


if __name__ == "__main__":
    main(sys.argv[1:])
