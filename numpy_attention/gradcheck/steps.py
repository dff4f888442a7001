"""Record the steps of a function, and replace the derivative of one step by a wrong one.

The function runs on complex arrays: the real part is the value, the imaginary part is the change of the value along a
direction (the complex step). `Traced` arrays report each step, such as `a * b` or `np.tanh(x)`, to their `Trace`. A
step turns the changes of its operands into the change of its result. At one operand of one step, the trace can use
another rule: no change at all (the path through this operand is left out), or the change of a wrong derivative.
"""

import ast
import functools
import linecache
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

WHOLE = (np.einsum, np.dot, np.where, np.concatenate)  # functions that are one step, like those of np.linalg
LONG = 60  # characters of quoted code

Rule = Callable[["Step", int], np.ndarray]  # the change of the result that comes from one operand


class Site(NamedTuple):
    """A step in the source of the function; a loop visits it several times."""

    file: str
    place: tuple[int | None, ...]  # line, last line, first and last column
    name: str

    def quoted(self) -> tuple[str, list[str]]:
        """The source of the step with its line, and of its operands; without the source, the name of the step."""
        line, end, start, stop = self.place
        text = linecache.getline(self.file, line or 0) if line == end else ""
        text = text.encode()[start:stop].decode()
        try:
            tree = ast.parse(text).body[0]
        except (SyntaxError, IndexError):
            return f"step {self.name} (line {line})", []
        parts = _operands(tree.value if isinstance(tree, ast.Expr) else tree)
        operands = [ast.unparse(part) for part in parts]
        short = text if len(text) <= LONG else f"{text[:LONG]}..."
        return f"`{short}` (line {line})", operands[-1:] if self.name.endswith(".at") else operands


def _operands(tree: ast.AST) -> list[Any]:
    """The operands of an operation, or the arguments of a call; a method has its array as the first one."""
    match tree:
        case ast.BinOp():
            return [tree.left, tree.right]
        case ast.AugAssign():
            return [tree.target, tree.value]
        case ast.Subscript():
            return [tree.value]
        case ast.UnaryOp():
            return [tree.operand]
        case ast.Call(args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_]):  # np.concatenate
            return list(parts)
        case ast.Call(func=ast.Attribute(value=array)) if not ast.unparse(array).startswith(("np", "numpy")):
            return [array, *tree.args]
        case ast.Call():
            return list(tree.args)
    return []


class Step(NamedTuple):
    """One visit of a site: the function, its operands, its result, and the number of the visit."""

    site: Site
    run: Callable[..., Any]
    operands: Sequence[Any]
    result: Any
    visit: int

    def change(self, operand: int, others: Mapping[int, Any] = {}) -> np.ndarray:
        """The change of the result that comes from one operand, also with other values for other operands."""
        values = [one if i == operand else others.get(i, _real(one)) for i, one in enumerate(self.operands)]
        return np.asarray(self.run(*values)).imag


class Trace:
    """The steps of one run; at one site, a rule replaces the change that comes from one operand."""

    def __init__(self, sites: Collection[Site] = (), operand: int = 0, rule: Rule | None = None) -> None:
        self.sites, self.operand, self.rule = sites, operand, rule
        self.visits: dict[Site, int] = {}
        self.steps: list[Step] = []

    def step(self, name: str, run: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """The result of a step."""
        plain = [_plain(one) for one in operands]
        result, site = run(*plain), _site(name)
        visit = self.visits[site] = self.visits.get(site, -1) + 1
        if isinstance(result, tuple):  # as of np.linalg.eigh
            return type(result)(*(self.traced(one) for one in result))
        one = Step(site, run, plain, result, visit)
        if self.rule is None:  # with copies, since later steps can work in place
            kept = [x.copy() if isinstance(x, np.ndarray) else x for x in plain]
            self.steps.append(one._replace(operands=kept, result=np.array(result)))
        elif site in self.sites and _moves(plain[self.operand]):
            result = result + 1j * (self.rule(one, self.operand) - one.change(self.operand))
        return self.traced(result)

    def traced(self, array: Any) -> Any:
        """The array, which reports its steps from now on."""
        if isinstance(array, (list, tuple)):
            return type(array)(self.traced(one) for one in array)
        if getattr(array, "dtype", np.dtype(bool)).kind != "c":
            return array
        found = np.asarray(array).view(Traced)
        found.record = self
        return found


class Traced(np.ndarray):
    """A complex array that reports each step to its trace."""

    record: Trace

    def __array_finalize__(self, array: Any) -> None:
        self.record = getattr(array, "record", None) or Trace()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), **options: Any) -> Any:
        trace = next((one.record for one in inputs if isinstance(one, Traced)), self.record)
        name = ufunc.__name__ + (f".{method}" if method != "__call__" else "")
        if method == "at":
            array, index, *values = (_plain(one) for one in inputs)
            ufunc.at(array, index, *(_plain(trace.step(name, np.asarray, [one])) for one in values))
            return None
        run = (lambda x: x * np.sign(x.real)) if ufunc is np.absolute else getattr(ufunc, method)
        result = trace.step(name, lambda *values: run(*values, **options), inputs)
        if out[0] is None:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function not in WHOLE and not function.__module__.startswith("numpy.linalg"):
            return self.record.traced(super().__array_function__(function, types, args, options))
        if function is np.concatenate:
            return self.record.step("concatenate", lambda *parts: function(parts, *args[1:], **options), args[0])
        return self.record.step(function.__name__, lambda *values: function(*values, **options), args)

    def __getitem__(self, key: Any) -> Any:
        parts = [_plain(part) for part in key] if isinstance(key, tuple) else [_plain(key)]
        if any(isinstance(part, (np.ndarray, list)) for part in parts):
            return self.record.step("take", lambda x: x[tuple(parts)], [self])
        return super().__getitem__(key)


def moving(trace: Trace) -> Iterator[tuple[Site, int, list[Step]]]:
    """Each operand of each site that changes, and all visits of the site."""
    steps = [step for step in trace.steps if np.iscomplexobj(step.result)]  # not comparisons
    found = [(step.site, i) for step in steps for i, value in enumerate(step.operands) if _moves(value)]
    for site, operand in dict.fromkeys(found):
        yield site, operand, [step for step in steps if step.site == site]


def _site(name: str) -> Site:
    frame = sys._getframe(2)
    while str(frame.f_globals.get("__name__")).startswith(("numpy.", __name__)) and frame.f_back:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, _places(frame.f_code)[frame.f_lasti // 2], name)


@functools.lru_cache(1000)
def _places(code: CodeType) -> list[tuple[int | None, ...]]:
    return list(code.co_positions())


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Traced) else value


def _real(value: Any) -> Any:
    return value.real.copy() if isinstance(value, np.ndarray) and value.dtype.kind == "c" else value


def _moves(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "c" and bool(value.imag.any())
