"""Mutations: a source file with one small change, made from its syntax tree.

`operator_changes` are made in the chapters of ops/: sign (- for +, a minus left out), factor (/ for *), term (only one
side of a sum or product), transpose (left out), axis (the first for the last), call (np.subtract for np.add), number
(doubled), compare (<= for <).

`token_changes` are made in all other code, also in checks of arguments: all changes above, and also numbers minus one,
True for False, `and` for `or`, an inverted condition, max for min, an argument left out or exchanged with the next, a
bound of a slice left out, a name replaced by another of the same kind (a parameter, an attribute, a name that the same
line imports), a line left out. Docstrings, annotations and error messages are not changed.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Changes = Iterator[tuple[str, Any]]

PAIRS = "np.add np.subtract, np.multiply np.divide, np.maximum np.minimum"
MORE_PAIRS = (
    "min max, any all, np.min np.max, np.any np.all, np.zeros np.ones, np.zeros_like np.ones_like, np.sum np.mean, "
    "np.argmin np.argmax, math.floor math.ceil, np.floor np.ceil, np.sqrt np.square, math.log math.exp, np.log np.exp"
)


def _both_ways(pairs: str) -> dict[str, str]:
    both = [pair.split() for pair in pairs.split(", ")]
    return dict(both) | {b: a for a, b in both}


CALLS = _both_ways(PAIRS)
MORE_CALLS = _both_ways(MORE_PAIRS)
SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
MORE_SWAPS = {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
MORE_SWAPS |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
COMPARES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
MORE_COMPARES = {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}


@dataclass(frozen=True)
class Mutation:
    """One change: its place, its kind, and the code before and after it."""

    file: str  # models/gpt
    function: str  # GPT.forward; empty for code outside of functions
    line: int
    kind: str
    before: str
    after: str
    module: ast.Module = field(repr=False, compare=False)
    node: ast.AST = field(repr=False, compare=False)
    changed: ast.AST = field(repr=False, compare=False)
    statement: str = ""  # the line with the change
    number: int = 1  # counts equal changes of equal lines in one function

    @property
    def place(self) -> str:
        return f"{self.file}.{self.function}".rstrip(".")

    @property
    def change(self) -> str:
        return f"{self.before} -> {self.after}"

    @property
    def name(self) -> str:
        """A name that does not depend on the lines above the change."""
        return f"{self.place}: {self.change} | {self.statement} | {self.number}"

    @property
    def tree(self) -> ast.Module:
        """The changed module."""
        return _replaced(self.module, self.node, self.changed)


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


def operator_changes(node: Any) -> Changes:
    """The changes of a formula."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
        yield ("sign" if isinstance(node.op, (ast.Add, ast.Sub)) else "factor"), _with(node, op=SWAPS[type(node.op)]())
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
        yield "call", _with(node, func=_parsed(CALLS[ast.unparse(node.func)]))
    if isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg == "axis" and ast.unparse(keyword.value) in ("-1", "0"):
                one = copy.deepcopy(node)
                one.keywords[i].value = ast.Constant(0 if ast.unparse(keyword.value) == "-1" else -1)
                yield "axis", one
    if _is_number(node):
        yield "number", ast.Constant(2 * node.value if node.value else type(node.value)(1))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARES:
        yield "compare", _with(node, ops=[COMPARES[type(node.ops[0])](), *node.ops[1:]])


def token_changes(node: Any, asked: bool, names: dict[str, str]) -> Changes:
    """All changes of any code; `asked`: whether it is a condition; `names`: another name of the same kind for each."""
    yield from operator_changes(node)
    if asked and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        yield "condition", ast.UnaryOp(ast.Not(), node)
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in MORE_SWAPS:
        yield "operator", _with(node, op=MORE_SWAPS[type(node.op)]())
    if _is_number(node) and isinstance(node.value, int) and node.value > 1:
        yield "number", ast.Constant(node.value - 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "boolean", ast.Constant(not node.value)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in MORE_COMPARES:
        yield "compare", _with(node, ops=[MORE_COMPARES[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.BoolOp):
        yield "and/or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for one in (node.values[0], node.values[-1]):
            yield "and/or", _shorter(node, one)
    if isinstance(node, ast.Call):
        yield from _of_calls(node)
    if isinstance(node, ast.Slice):
        for bound in ("lower", "upper", "step"):
            if getattr(node, bound) is not None:
                yield "slice", _with(node, **{bound: None})
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        first, second, *rest = node.value.elts
        yield "order", _with(node, value=_with(node.value, elts=[second, first, *rest]))
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and ast.unparse(node) in names:
        yield "name", _parsed(names[ast.unparse(node)])
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "line", ast.copy_location(ast.Pass(), node)
    if isinstance(node, (ast.Break, ast.Continue)):
        yield "line", ast.copy_location(ast.Continue() if isinstance(node, ast.Break) else ast.Break(), node)


def _of_calls(node: ast.Call) -> Changes:
    called = ast.unparse(node.func)
    if called in MORE_CALLS:
        yield "call", _with(node, func=_parsed(MORE_CALLS[called]))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg:
            yield "argument", _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
    for i in range(len(node.args) - 1):
        if called not in ("isinstance", "getattr", "setattr", "hasattr"):
            args = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
            yield "order", _with(node, args=args)


def _is_number(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def _with(node: ast.AST, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _shorter(node: ast.BoolOp, without: ast.expr) -> ast.expr:
    left = [value for value in node.values if value is not without]
    return left[0] if len(left) == 1 else _with(node, values=left)


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
