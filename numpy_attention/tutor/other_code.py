"""What a student may write in place of an expression or a statement: one thing left out, exchanged or added.

    other_expressions    dy * w             dy, w, dy / w, w left out ...
    other_names          another variable, or its sum, or its length
    another_factor       a factor too much
    other_statements     a line left out, one line too late, inside a loop; = in place of +=
"""

import ast
import copy
import itertools
from collections.abc import Iterator
from typing import Any

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
Change = tuple[str, ast.expr]  # the words, and the new expression


def other_expressions(node: ast.expr, parent: ast.AST) -> Iterator[Change]:
    """Other expressions for one expression, the simplest first."""
    text = ast.unparse(node)
    match node:
        case ast.BinOp():
            yield from _of_operation(node)
        case ast.Call(func=ast.Attribute() as function):
            yield from _of_call(node, function)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert() as sign, operand=operand):
            if not isinstance(operand, ast.Constant):
                what = "sign" if isinstance(sign, ast.USub) else "negation"
                yield f"the {what} of {_quoted(node)} is left out", operand
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPPOSITE:
            other = ast.Compare(left, [OPPOSITE[type(op)]()], [right])
            yield f"{_quoted(other)} is used in place of {_quoted(node)}", other
        case ast.Call(func=ast.Name(id="reversed" | "sorted" | "sum" | "int"), args=[inside]):
            yield f"`{ast.unparse(node.func)}` is left out", inside
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            opposite = ast.Call(ast.Name({"min": "max", "max": "min"}[name], ast.Load()), node.args, node.keywords)
            yield f"{_quoted(opposite)} is used in place of {_quoted(node)}", opposite
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
    if isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("range", "np.arange", "np.tri", "np.tril"):
        for by, step in (("+ 1", ast.Add), ("- 1", ast.Sub)):
            yield f"`{text} {by}` is used in place of `{text}`", ast.BinOp(node, step(), ast.Constant(1))


def _of_operation(node: ast.BinOp) -> Iterator[Change]:
    """An operand left out, exchanged operands, another sign, other brackets."""
    left, op, right = node.left, node.op, node.right
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


def _of_call(node: ast.Call, function: ast.Attribute) -> Iterator[Change]:
    """The call of a method or of a NumPy function left out, with exchanged arguments, of another function."""
    array, name, arguments, keywords = function.value, function.attr, node.args, node.keywords
    for i in range(1, len(arguments)) if name in ("reshape", "swapaxes", "transpose") else ():
        swapped = [*arguments[: i - 1], arguments[i], arguments[i - 1], *arguments[i + 1 :]]
        other: Any = ast.Call(function, swapped, keywords)
        yield f"{_quoted(other)} is used in place of {_quoted(node)}", other
    for i, keyword in enumerate(keywords):
        if keyword.arg == "axis":
            other = ast.Call(function, arguments, [*keywords[:i], *keywords[i + 1 :]])
            yield f"`{ast.unparse(keyword)}` is left out of {_quoted(node)}", other
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


def other_names(node: ast.expr, names: list[str]) -> Iterator[Change]:
    """Other variables for one variable."""
    text = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) else ""
    sizes = [f"{name}.{size}" for name in names if "." not in name for size in ("size", "shape[0]", "shape[-1]")]
    sums = [f"{text}.{sum_}(axis=-1, keepdims=True)" for sum_ in ("sum", "mean")]
    for name in [*names, *sums, *sizes] if text in names else ():
        if name != text:
            yield f"`{name}` is used in place of `{text}`", ast.parse(name, mode="eval").body


def another_factor(node: ast.expr, parent: ast.AST, names: list[str]) -> Iterator[Change]:
    """A factor too much, for the value of a statement, or for one of the returned values."""
    if not isinstance(parent, ast.Assign | ast.AugAssign | ast.Return):
        return
    several = isinstance(node, ast.Tuple) and isinstance(parent, ast.Return)
    values = node.elts if isinstance(node, ast.Tuple) and several else [node]
    factors = [*names, *(f"{names[0]}.{size}" for size in ("shape[0]", "shape[-1]", "shape[-2]", "size")), "2"]
    for i, value in enumerate(values):
        if isinstance(value, ast.Tuple | ast.Constant):
            continue
        for factor, (how, operation) in itertools.product(factors, (("multiplied", ast.Mult), ("divided", ast.Div))):
            new: ast.expr = ast.BinOp(value, operation(), ast.parse(factor, mode="eval").body)
            if several:
                new = ast.Tuple([*values[:i], new, *values[i + 1 :]], ast.Load())
            yield f"{_quoted(value)} is also {how} by `{factor}`", new


def other_statements(function: ast.FunctionDef) -> Iterator[str]:
    """The function without one of its statements, or with = in place of +=."""
    for block in [one for one in ast.walk(function) if isinstance(getattr(one, "body", None), list)]:
        body: list[ast.stmt] = block.body  # type: ignore[attr-defined]
        for i, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                continue
            line = first_line(statement)
            if isinstance(statement, ast.AugAssign) and type(statement.op) in SIGNS:
                sign, other, opposite = SIGNS[type(statement.op)]
                body[i] = ast.copy_location(ast.Assign([statement.target], statement.value), statement)
                yield f"in `{line}`, = is used in place of {sign}"
                body[i] = ast.copy_location(ast.AugAssign(statement.target, opposite(), statement.value), statement)
                yield f"in `{line}`, {other} is used in place of {sign}"
            if not isinstance(statement, ast.For | ast.While):
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


def names_in(function: ast.FunctionDef) -> list[str]:
    """The arguments and variables of a function, and the attributes of self."""
    found = [one.arg for one in function.args.args if one.arg != "self"]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            found.append(ast.unparse(node))
    return list(dict.fromkeys(found))


def first_line(statement: ast.stmt) -> str:
    """A short statement; of a longer one only the variable, because the rest would tell too much of the solution."""
    text = ast.unparse(statement).splitlines()[0]
    match statement:
        case ast.Assign(targets=[target]) if len(text) > 30:
            return f"{ast.unparse(target)} = ..."
        case ast.AugAssign(target=target, op=op) if len(text) > 30:
            return f"{ast.unparse(target)} {SIGNS[type(op)][0] if type(op) in SIGNS else '='} ..."
        case ast.Return():
            return "return ..."
    return text if len(text) <= 50 else text[:47] + "..."


def _quoted(node: ast.AST) -> str:
    """The source of an expression, at most 60 characters."""
    text = ast.unparse(node)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"
