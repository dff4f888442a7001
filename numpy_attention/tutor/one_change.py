"""Which one change of a right solution gives the numbers of a wrong answer?

Most wrong answers differ from a right one in one place: a factor, a term or a transpose is left out, a sign is wrong,
another array is used, a limit is off by one. So this module changes one place of the page's solution after another, and
runs it. If the numbers are those of the student's answer on every draw, this change describes the mistake.

    def backward(dy, cache):            in `dh = dh + dy`, `dy` is left out
        dh = norm_backward(dn)          in `dx = attention_backward(dh)`, `dy` is used in place of `dh`
        dh = dh + dy                    in `dk[rows] += ...`, = is used in place of +=
        dx = attention_backward(dh)
"""

import ast
import copy
import itertools
import time
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from numpy_attention.tutor.exercise import Exercise
from numpy_attention.tutor.page import exercise_texts

AXES = (-1, -2, 0, 1)
OPPOSITE: dict[Any, Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.And: ast.Or, ast.Or: ast.And,
}
SIGNS: dict[type[ast.AST], tuple[str, str, type[ast.operator]]] = {
    ast.Add: ("+=", "-=", ast.Sub), ast.Sub: ("-=", "+=", ast.Add), ast.Mult: ("*=", "/=", ast.Div),
    ast.Div: ("/=", "*=", ast.Mult),
}
OTHER_METHODS = {"sum": "mean", "mean": "sum", "max": "sum", "cumsum": "sum", "maximum": "minimum", "tril": "triu"}
SECONDS = 5.0  # of the processor: then the search ends
MOST_LOOPS = 1000  # a changed `while` loop ends after so many rounds
Change = tuple[str, ast.AST | None]  # the words, and the new node; None deletes a statement


def changed_solutions(
    exercise: Exercise, module: types.ModuleType, twice: bool = False
) -> Iterator[tuple[list[str], Any]]:
    """Each change in words, with the functions and classes that the exercise asks for; `module` has the solution.

    With `twice`, two changes at a time, but none of the names of variables.
    """
    for function in ast.parse(exercise_texts()[exercise.name].code).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        loops = any(isinstance(one, ast.While) for one in ast.walk(function))
        for words in _two_changes(function) if twice else ([one] for one in _changes(function)):
            names = {**vars(module), "rounds": itertools.count()}
            try:
                changed = _Limited().visit(copy.deepcopy(function)) if loops else function
                tree = ast.fix_missing_locations(ast.Module([changed], []))
                exec(compile(tree, "<changed solution>", "exec"), names)
            except (SyntaxError, ValueError, TypeError):
                continue
            made = names[function.name]
            for name, kind in exercise.needed.items():
                if kind == "class" and function.name in dir(names[name]):
                    names[name] = type(name, (names[name],), {function.name: made})
            yield words, SimpleNamespace(**{name: names[name] for name in exercise.needed})


class _Limited(ast.NodeTransformer):
    """Ends each `while` loop: a change can make it endless."""

    def visit_While(self, node: ast.While) -> ast.While:
        limit = ast.parse(f"next(rounds) < {MOST_LOOPS}", mode="eval").body
        node.test = ast.BoolOp(ast.And(), [limit, node.test])
        self.generic_visit(node)
        return node


def _changes(function: ast.FunctionDef) -> Iterator[str]:
    """Change the tree in one place after another; it is changed while the caller has the words."""
    yield from _simple_changes(function)
    names = _names(function)
    yield from _in_expressions(function, lambda node, parent: _other_names(node, names))
    yield from _in_expressions(function, lambda node, parent: _another_factor(node, parent, names))


def _simple_changes(function: ast.FunctionDef) -> Iterator[str]:
    yield from _without_a_statement(function)
    yield from _in_expressions(function, _others)


def _two_changes(function: ast.FunctionDef) -> Iterator[list[str]]:
    for i, first in enumerate(_simple_changes(function)):
        for j, second in enumerate(_simple_changes(function)):  # to its end, so that it restores the tree
            if j < i:
                yield [first, second]


def _in_expressions(
    function: ast.FunctionDef, others: Callable[[ast.expr, ast.AST], Iterator[Change]]
) -> Iterator[str]:
    """Put other expressions in the place of each expression of the function."""
    for statement in [one for one in ast.walk(function) if isinstance(one, ast.stmt) and one is not function]:
        for parent in _own(statement):
            for field, value in list(ast.iter_fields(parent)):
                for i, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                    if not isinstance(node, ast.expr):
                        continue
                    line = _line(statement)
                    for words, new in others(node, parent):
                        _put(parent, field, i, new)
                        yield f"in `{line}`, {words}"
                        _put(parent, field, i, node)


def _put(parent: ast.AST, field: str, i: int | None, node: ast.AST | None) -> None:
    if i is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[i] = node


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and its expressions, without the statements inside it."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from (one for one in ast.walk(child) if not isinstance(one, ast.expr_context | ast.operator))


def _line(statement: ast.stmt) -> str:
    """The first line of a statement, at most 80 characters."""
    text = ast.unparse(statement).splitlines()[0]
    return text if len(text) <= 80 else text[:77] + "..."


def _quoted(node: ast.AST) -> str:
    """The source of an expression, at most 60 characters."""
    text = ast.unparse(node)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _names(function: ast.FunctionDef) -> list[str]:
    """The arguments and variables of a function, and the attributes of self."""
    found = [one.arg for one in function.args.args if one.arg != "self"]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            found.append(ast.unparse(node))
    return list(dict.fromkeys(found))


def _other_names(node: ast.expr, names: list[str]) -> Iterator[Change]:
    """Other variables for one variable."""
    text = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) else ""
    sizes = [f"{name}.{size}" for name in names if "." not in name for size in ("size", "shape[0]", "shape[-1]")]
    sums = [f"{text}.{sum_}(axis=-1, keepdims=True)" for sum_ in ("sum", "mean")]
    for name in [*names, *sums, *sizes] if text in names else ():
        if name != text:
            yield f"`{name}` is used in place of `{text}`", ast.parse(name, mode="eval").body


def _another_factor(node: ast.expr, parent: ast.AST, names: list[str]) -> Iterator[Change]:
    """A factor too much, for the value of a statement, or for one of the returned values."""
    returned = isinstance(node, ast.Tuple) and isinstance(parent, ast.Return)
    for i, value in enumerate(node.elts if isinstance(node, ast.Tuple) and returned else [node]):
        statement = isinstance(parent, ast.Assign | ast.AugAssign | ast.Return)
        if not statement or isinstance(value, ast.Tuple | ast.Constant):
            continue
        sizes = [f"{names[0]}.shape[0]", f"{names[0]}.shape[-1]", f"{names[0]}.shape[-2]", f"{names[0]}.size"]
        for factor, operation in itertools.product([*names, *sizes, "2"], (ast.Mult, ast.Div)):
            new: Any = ast.BinOp(value, operation(), ast.parse(factor, mode="eval").body)
            if isinstance(node, ast.Tuple) and returned:
                new = ast.Tuple([*node.elts[:i], new, *node.elts[i + 1 :]], ast.Load())
            how = "multiplied" if operation is ast.Mult else "divided"
            yield f"{_quoted(value)} is also {how} by `{factor}`", new


def _others(node: ast.expr, parent: ast.AST) -> Iterator[Change]:
    """Other expressions for one expression, the simplest first."""
    text = ast.unparse(node)
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            yield from _on_one_term(node)
            yield f"{_quoted(right)} is left out of {_quoted(node)}", left
            if isinstance(left, ast.Constant):
                yield f"{_quoted(right)} is used in place of {_quoted(node)}", right
            elif not isinstance(op, ast.Pow):
                yield f"{_quoted(left)} is left out of {_quoted(node)}", right
            if isinstance(op, ast.Sub):
                yield f"{_quoted(left)} is left out of {_quoted(node)}", ast.UnaryOp(ast.USub(), right)
            if isinstance(op, ast.Sub | ast.Div | ast.MatMult):
                yield f"{_quoted(left)} and {_quoted(right)} are exchanged", ast.BinOp(right, op, left)
            if type(op) in OPPOSITE:
                other: Any = ast.BinOp(left, OPPOSITE[type(op)](), right)
                yield f"{_quoted(other)} is used in place of {_quoted(node)}", other
            for other in _other_brackets(left, op, right):
                yield f"the brackets are {_quoted(other)}", other
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert() as sign, operand=operand):
            if not isinstance(operand, ast.Constant):
                what = "sign" if isinstance(sign, ast.USub) else "negation"
                yield f"the {what} of {_quoted(node)} is left out", operand
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPPOSITE:
            other = ast.Compare(left, [OPPOSITE[type(op)]()], [right])
            yield f"{_quoted(other)} is used in place of {_quoted(node)}", other
        case ast.Call(func=ast.Attribute(value=array, attr=name) as function, args=arguments, keywords=keywords):
            for i in range(1, len(arguments)) if name in ("reshape", "swapaxes", "transpose") else ():
                swapped = [*arguments[: i - 1], arguments[i], arguments[i - 1], *arguments[i + 1 :]]
                other = ast.Call(function, swapped, keywords)
                yield f"{_quoted(other)} is used in place of {_quoted(node)}", other
            if ast.unparse(array) != "np" and name not in ("backward", "forward", "append", "items"):
                yield f"`.{name}(...)` is left out of {_quoted(node)}", array
            if ast.unparse(array) == "np" and arguments and not isinstance(arguments[0], ast.Tuple | ast.List):
                yield f"`np.{name}` is left out", arguments[0]
            if name == "sqrt" and isinstance(arguments[0], ast.BinOp):
                one, op, two = arguments[0].left, arguments[0].op, arguments[0].right
                other = ast.BinOp(ast.Call(function, [one], []), op, two)
                yield f"{_quoted(other)} is used in place of {_quoted(node)}", other
            if name == "where" and len(arguments) == 3:
                yield "the mask is left out", arguments[1]
            if name in OTHER_METHODS:
                other = ast.Call(ast.Attribute(array, OTHER_METHODS[name], function.ctx), arguments, keywords)
                yield f"`{OTHER_METHODS[name]}` is used in place of `{name}`", other
        case ast.Call(func=ast.Name(id="reversed" | "sorted" | "sum" | "int"), args=[inside]):
            yield f"`{ast.unparse(node.func)}` is left out", inside
        case ast.Attribute(attr="T" | "mT", value=array):
            yield f"the transpose of {_quoted(array)} is left out", array
        case ast.Constant(value=value) if type(value) is int:
            others = AXES if isinstance(parent, ast.keyword) or value < 0 else (value - 1, value + 1)
            for number in others:
                if number != value:
                    yield f"{number} is used in place of {value}", ast.Constant(number)
        case ast.Subscript(value=array, slice=index) if not isinstance(node.ctx, ast.Store):
            yield f"`[{ast.unparse(index)}]` is left out of {_quoted(node)}", array
        case ast.Slice(lower=lower, upper=upper):
            for limit, end in ((lower, "lower"), (upper, "upper")):
                for operation in (ast.Add(), ast.Sub()) if limit is not None else ():
                    moved = copy.copy(node)
                    setattr(moved, end, ast.BinOp(limit, operation, ast.Constant(1)))  # type: ignore[arg-type]
                    yield f"the {end} limit of `[{text}]` is off by one", moved
        case ast.Tuple(elts=elements) if isinstance(node.ctx, ast.Load) and isinstance(parent, ast.Return):
            for i, one in enumerate(elements):
                for j in range(i):
                    swapped = [*elements]
                    swapped[i], swapped[j] = elements[j], one
                    yield f"{_quoted(elements[j])} and {_quoted(one)} are exchanged", ast.Tuple(swapped, ast.Load())
    if isinstance(parent, ast.Call | ast.BinOp) and isinstance(node, ast.Name | ast.Call | ast.BinOp | ast.Attribute):
        for by, step in (("+ 1", ast.Add), ("- 1", ast.Sub)):
            if isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("range", "np.arange", "np.tri", "np.tril"):
                yield f"`{text} {by}` is used in place of `{text}`", ast.BinOp(node, step(), ast.Constant(1))


def _on_one_term(node: ast.BinOp) -> Iterator[Change]:
    """a * (b - c), also inside a longer product, with the factor a on only one of the two terms."""
    for factor, product in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(node.op, ast.Mult):
            return
        inner: Any = factor
        while isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult | ast.Div):
            yield from _on_one_term_of(inner.right, product, inner.left, inner.op)
            inner = inner.left
        yield from _on_one_term_of(inner, product, None, node.op)


def _on_one_term_of(
    factor: ast.expr, terms: ast.expr, rest: ast.expr | None, op: ast.operator
) -> Iterator[Change]:
    if not isinstance(terms, ast.BinOp) or not isinstance(terms.op, ast.Add | ast.Sub):
        return
    on_first = ast.BinOp(ast.BinOp(terms.left, op, factor), terms.op, terms.right)
    on_second = ast.BinOp(terms.left, terms.op, ast.BinOp(terms.right, op, factor))
    for term, new in ((terms.left, on_first), (terms.right, on_second)):
        whole = new if rest is None else ast.BinOp(rest, ast.Mult(), new)
        yield f"{_quoted(factor)} is a factor of {_quoted(term)} alone", whole


def _other_brackets(left: ast.expr, op: ast.operator, right: ast.expr) -> Iterator[ast.expr]:
    """a * (b - c) with other brackets, a * b - c; and sqrt(a + b) for sqrt(a) + b."""
    if isinstance(op, ast.Add) and isinstance(left, ast.Call) and ast.unparse(left.func) in ("np.sqrt", "math.sqrt"):
        yield ast.Call(left.func, [ast.BinOp(left.args[0], op, right)], [])
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add | ast.Sub):
        yield ast.BinOp(ast.BinOp(left, op, right.left), right.op, right.right)
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub):
        yield ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))


def _without_a_statement(function: ast.FunctionDef) -> Iterator[str]:
    """The function without one of its statements, or with = in place of +=."""
    for block in [one for one in ast.walk(function) if isinstance(getattr(one, "body", None), list)]:
        body: list[ast.stmt] = block.body  # type: ignore[attr-defined]
        for i, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                continue
            line = _line(statement)
            if isinstance(statement, ast.AugAssign) and type(statement.op) in SIGNS:
                sign, other, opposite = SIGNS[type(statement.op)]
                body[i] = ast.copy_location(ast.Assign([statement.target], statement.value), statement)
                yield f"in `{line}`, = is used in place of {sign}"
                body[i] = ast.copy_location(ast.AugAssign(statement.target, opposite(), statement.value), statement)
                yield f"in `{line}`, {other} is used in place of {sign}"
            body[i] = ast.copy_location(ast.Pass(), statement)
            yield f"the line `{line}` is left out"
            if i + 1 < len(body) and isinstance(loop := body[i + 1], ast.For):
                loop.body.insert(0, statement)
                yield f"the line `{line}` is inside the loop that comes after it"
                del loop.body[0]
            if i + 1 < len(body) and not isinstance(body[i + 1], ast.Return):
                body[i], body[i + 1] = body[i + 1], statement
                yield f"the line `{line}` comes one line too late"
                body[i + 1] = body[i]
            body[i] = statement


def one_change(
    exercise: Exercise, module: types.ModuleType, agreement: Callable[[Any], set[str]], cases: set[str]
) -> list[str]:
    """The change that gives the answer in all cases, in words; or two changes; or a change for a wrong case.

    `agreement` returns the cases in which a changed solution agrees with the answer.
    """
    found: dict[str, list[str]] = {}
    for twice in (False, True):
        end = time.process_time() + SECONDS
        for words, made in changed_solutions(exercise, module, twice):
            alike = agreement(made)
            if alike == cases:
                return words
            if not twice:
                found |= dict.fromkeys(alike - found.keys(), words)
            if time.process_time() > end:
                break
    return [f"{words} (only in the case `{case}`)" for case in sorted(found) for words in found[case]][:1]
