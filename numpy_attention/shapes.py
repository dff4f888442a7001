"""A small language for the arguments of a function: names, kinds and sizes. Equal names are equal sizes.

    q: B H T_q d_k, k: B H T_k d_k, v: B H T_k d_v, mask: bool T_q T_k
    x: ... d, gamma: d, b?: d                      `...` is any number of leading axes, `b?` may be absent
    ids: int<V> B T, targets: int<V|-100> B T      integers below V; some targets are -100
    q: B H T d, k: B H_kv T d; H = G*H_kv          a size may be a product or sum of other sizes
    x: ... d; d >= 1                               a size may have a minimum
    q: ... T_q d, mask: bool to ... T_q T_k        this array is broadcastable to the sizes after the word `to`

A chapter says in one line which arguments its op takes. `check_shapes` compares the arguments of a call with this line,
and the checker draws test inputs from it (gradcheck/spec.py).
"""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import (
    broadcasts_to,
    require_bools,
    require_float,
    require_integers,
    shape_error,
)

Shape = tuple[int, ...]
Size = int | Shape  # a tuple for the leading axes of `...`
Sizes = dict[str, Size]
NUMBER_KINDS = ("float", "positive", "distinct", "sorted", "simplex", "unit", "orthogonal", "spd", "complex")
KINDS = (*NUMBER_KINDS, "bool", "int")
MASK = "boolean, True = may look"
_NAME = re.compile(r"[A-Za-z_]\w*")
_INT = re.compile(r"int<([^<>|]+)(?:\|(-?\d+))?>")
_LONG = re.compile(r"[a-z]{4,}")  # a word, rather than the name of a size
_FITTING: set[tuple[Any, ...]] = set()  # calls that passed; the next step has the same shapes, and is not checked again
_OF_ROWS, _OF_MATRICES = ("sorted", "simplex", "unit"), ("spd", "orthogonal")


def check_shapes(
    op: str, shapes: str, /, *, fixes: Mapping[str, str] | None = None, extra: int | None = None, **arrays: Any
) -> None:
    """Refuse arguments that do not fit the line `shapes`, with one error that names the argument and the likely fix.

    `fixes` has hints: "k" for a k of a wrong shape, "k.T" if k seems to be transposed, "mask: bool" for a mask of a
    wrong dtype, "mask: axes" for a mask with more axes than it is broadcast to, "..." for leading axes that differ, "V"
    for an integer that is not below V, "T_k >= 1" and "H = G*H_kv" for this condition. `extra` is an integer that is
    always allowed.

    Raises: TypeError for a wrong dtype, ValueError for a wrong shape or an integer that is too large.

    >>> check_shapes("linear", "x: ... d_in, w: d_in d_out", x=np.zeros((5, 3)), w=np.zeros((4, 3)))
    Traceback (most recent call last):
    ...
    ValueError: linear: w must be (d_in, d_out) with d_in = 3 as in x (5, 3), got (4, 3); did you pass w transposed?
    """
    key = _key(shapes, arrays)
    if key in _FITTING:
        return
    spec, fixes = parse(shapes), fixes or {}
    given = [one for one in spec.arguments if arrays[one.name] is not None or not one.optional]
    floats, others = {}, []
    for one in given:
        if one.kind in NUMBER_KINDS:
            floats[one.name] = arrays[one.name]
        else:
            others.append(one)
    require_float(op, **floats)
    for one in others:
        if one.kind == "bool":
            require_bools(op, one.name, arrays[one.name], MASK, fixes.get(f"{one.name}: bool", ""), "a boolean array")
        else:
            require_integers(op, one.name, arrays[one.name])
    sizes = _sizes(shapes, tuple([(one.name, arrays[one.name].shape) for one in given]))
    if isinstance(sizes, _Misfit):
        fix = next((fixes[key] for key in sizes.keys if key in fixes), sizes.fix)
        raise shape_error(op, sizes.name, sizes.expected, arrays[sizes.name].shape, fix)
    for one in others:
        if one.kind == "int":
            ids, allowed = arrays[one.name], one.extra if extra is None else extra
            ids = ids if allowed is None else np.where(not_ignored(ids, allowed), ids, 0)
            require_integers(op, one.name, ids, below=sizes[one.limit], fix=fixes.get(one.limit, ""))
    if key is not None:
        if len(_FITTING) > 10_000:
            _FITTING.clear()
        _FITTING.add(key)


def _key(shapes: str, arrays: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a check depends on, or None if it also depends on values (of integers) or the arrays are not NumPy's."""
    key: list[Any] = [shapes]
    for name, x in arrays.items():
        if type(x) is np.ndarray and x.dtype.kind in "fb":
            key += name, x.shape, x.dtype
        elif x is not None:
            return None
    return tuple(key)


def not_ignored(ids: np.ndarray, ignore_index: int) -> np.ndarray:
    """True where an id counts, in an array with the shape of ids."""
    native = ids.astype(ids.dtype.type, order="C", copy=False)  # NumPy 2.0 crashes on odd uint64 arrays != -100
    return native != ignore_index


@dataclass(frozen=True)
class Argument:
    """One argument of a spec: its name, kind, and the expressions of its axes."""

    name: str
    kind: str
    dims: tuple[str, ...]
    limit: str = ""
    extra: int | None = None
    optional: bool = False
    broadcast: bool = False

    @property
    def axes(self) -> str:
        """The axes as a shape: (..., T, d)."""
        return f"({', '.join(self.dims)}{',' * (len(self.dims) == 1 and self.dims != ('...',))})"


@dataclass(frozen=True)
class Spec:
    """A parsed line: arguments in order, sizes that are defined by other sizes, and least sizes."""

    text: str
    arguments: tuple[Argument, ...]
    definitions: tuple[tuple[str, str], ...]
    minima: tuple[tuple[str, int], ...] = ()

    @property
    def size_names(self) -> tuple[str, ...]:
        """The names of the sizes to choose, in order of appearance; `...` means the leading axes."""
        defined = dict(self.definitions)
        expressions = (one for argument in self.arguments for one in (*argument.dims, argument.limit))
        return tuple(dict.fromkeys(name for one in expressions for name in _free_names(one, defined)))

    def shapes(self, sizes: Mapping[str, Size]) -> dict[str, Shape]:
        """The shape of each argument for these sizes."""
        return {argument.name: self.shape(argument, sizes) for argument in self.arguments}

    def shape(self, argument: Argument, sizes: Mapping[str, Size]) -> Shape:
        shape: Shape = ()
        for expression in argument.dims:
            size = sizes["..."] if expression == "..." else self.size(expression, sizes)
            shape += size if isinstance(size, tuple) else (size,)
        return shape

    def size(self, expression: str, sizes: Mapping[str, Size]) -> int:
        """The value of an axis expression such as `2*d_k` or `T+1`."""
        if "+" in expression:
            return sum(self.size(term, sizes) for term in expression.split("+"))
        if "*" in expression:
            return math.prod(self.size(factor, sizes) for factor in expression.split("*"))
        if expression.isdigit():
            return int(expression)
        if (definition := dict(self.definitions).get(expression)) is not None:
            return self.size(definition, sizes)
        value = sizes[expression]
        if not isinstance(value, int):
            raise ValueError(f"spec: size {expression} must be an int, got {value!r}")
        return value


@lru_cache(maxsize=1024)
def parse(text: str) -> Spec:
    """Parse the text of a spec.

    Raises: ValueError; the message quotes the wrong part.
    """
    head, *tails = text.split(";")
    arguments = tuple(_argument(part.strip(), text) for part in head.split(",") if part.strip())
    if not arguments:
        raise ValueError(f"spec: no arguments in {text!r}; write for example 'x: B T d'")
    names = [argument.name for argument in arguments]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"spec: {twice[0]} appears twice in {text!r}")
    definitions, minima = [], []
    for tail in tails:
        if least := re.fullmatch(r"\s*([A-Za-z_]\w*)\s*>=\s*(\d+)\s*", tail):
            minima.append((least[1], int(least[2])))
            continue
        name, equals, expression = (piece.strip() for piece in tail.partition("="))
        expression = expression.replace(" ", "")
        if not equals or not _NAME.fullmatch(name) or not _is_expression(expression):
            raise ValueError(f"spec: {tail.strip()!r} in {text!r} must be 'size = product', as in 'H = G*H_kv'")
        definitions.append((name, expression))
    return Spec(text, arguments, tuple(definitions), tuple(minima))


class _Misfit(NamedTuple):
    """A shape that does not fit: the argument, the expected axes, the keys of hints in `fixes`, and another hint."""

    name: str
    expected: str
    keys: tuple[str, ...]
    fix: str = ""


@lru_cache(maxsize=4096)
def _sizes(line: str, shapes: tuple[tuple[str, Shape], ...]) -> dict[str, Any] | _Misfit:
    """The sizes that these shapes give, or the first misfit; cached, since a training step repeats its shapes."""
    spec, given = parse(line), dict(shapes)
    sizes: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for one in spec.arguments:
        if one.name not in given:
            continue
        if not _fits(one, given[one.name], known := dict(sizes)):
            return _misfit(one, given, sizes, sources)
        sizes = known
        for dim in sizes:
            sources.setdefault(dim, one.name)
        for name, least in spec.minima:
            if sizes.get(name, least) < least:
                return _Misfit(one.name, f"{one.axes} with {name} at least {least}", (f"{name} >= {least}",))
        for name, meaning in spec.definitions:
            if name not in sizes:
                continue
            if sum_of := re.fullmatch(r"(\w+)\+(\d+)", meaning):  # n = m+1 gives m
                sizes[sum_of[1]], sources[sum_of[1]] = sizes[name] - int(sum_of[2]), sources[name]
            elif factor := _wrong_factor(sizes[name], meaning, sizes):
                divisor = f"{factor} a divisor of {name} = {sizes[name]} as in {sources[name]} {given[sources[name]]}"
                return _Misfit(one.name, f"{one.axes} with {divisor}", (f"{name} = {meaning}", one.name))
    return sizes


def _wrong_factor(size: int, product: str, sizes: dict[str, Any]) -> str:
    """The known factor of `H = G*H_kv` that does not divide this H; "" if the factors fit, or if H is 0."""
    parts = product.split("*")
    known = [part for part in parts if part in sizes]
    whole = math.prod(sizes[part] for part in known)
    fits = size == whole if len(known) == len(parts) else whole and size % whole == 0
    return "" if fits or not known or size == 0 else known[-1]


def _fits(argument: Argument, shape: Shape, sizes: dict[str, Any]) -> bool:
    """Whether an array of this shape fits the sizes found so far; adds new sizes."""
    if argument.broadcast:
        return broadcasts_to(shape, _target(argument, sizes))
    dims = argument.dims
    if dims[:1] == ("...",):
        dims = dims[1:]
        leading = len(shape) - len(dims)
        if leading < 0 or sizes.setdefault("...", shape[:leading]) != shape[:leading]:
            return False
        shape = shape[leading:]
    return len(dims) == len(shape) and all(
        int(dim) == n if dim.isdigit() else sizes.setdefault(dim, n) == n for dim, n in zip(dims, shape)
    )


def _target(argument: Argument, sizes: dict[str, Any]) -> Shape:
    """The shape to which an array must be broadcastable."""
    target: Shape = ()
    for dim in argument.dims:
        target += sizes[dim] if dim == "..." else (int(dim) if dim.isdigit() else sizes[dim],)
    return target


def _misfit(
    argument: Argument, given: Mapping[str, Shape], sizes: dict[str, Any], sources: Mapping[str, str]
) -> _Misfit:
    """The expected axes of an array that does not fit, the sizes that other arguments give, and the likely fix."""
    name, shape, expected = argument.name, given[argument.name], argument.axes
    if argument.broadcast:
        target = _target(argument, sizes)
        fix = _broadcast_fix(argument, shape, target)
        keys = (f"{name}: axes",) if len(shape) > len(target) else () if fix else (name,)
        return _Misfit(name, f"broadcastable to {expected} = {target}", keys, fix)
    found: dict[str, Any] = dict(zip(reversed(argument.dims), reversed(shape)))
    if "..." in argument.dims:
        found["..."] = shape[: max(len(shape) - len(argument.dims) + 1, 0)]
    known = [dim for dim in argument.dims if dim in sizes]
    count = len(argument.dims) - 1 + len(sizes["..."]) if "..." in known else len(argument.dims)
    uneven = "..." in known and len(argument.dims) > 1 and len(shape) != count
    wrong = [dim for dim in known if found.get(dim) != sizes[dim] or (uneven and dim == "...")] or known
    facts = {dim: f"{dim} = {sizes[dim]}" for dim in wrong}
    if "..." in wrong:
        facts["..."] = f"{count} axes" if uneven else f"the leading axes {sizes['...']}"
    word = "with"
    for source in dict.fromkeys(sources[dim] for dim in wrong):
        expected += f" {word} {', '.join(facts[dim] for dim in wrong if sources[dim] == source)}"
        expected += f" as in {source} {given[source]}"
        word = "and"
    if _fits(argument, (*shape[:-2], *shape[:-3:-1]), dict(sizes)):
        return _Misfit(name, expected, (f"{name}.T",), f"did you pass {name} transposed?")
    return _Misfit(name, expected, (f"{name}: ...", "...", name) if "..." in wrong else (name,))


def _broadcast_fix(argument: Argument, shape: Shape, target: Shape) -> str:
    """The likely fix for an array that is not broadcastable."""
    name = argument.name
    if argument.dims[-1:] == ("...",):
        return ""
    if len(shape) > len(target):
        return f"it has more axes; if one is the axis of heads, remove it: {name}[:, 0]"
    if broadcasts_to((*shape[:-2], *shape[:-3:-1]), target):
        return f"did you pass {name} transposed? its last two axes are {' and '.join(argument.dims[-2:])}"
    if len(target) > 2 and shape == (target[0], target[-1]):
        new = ", ".join(["None"] * (len(target) - 2))
        return f"if each row belongs to one sequence, add the missing axes: {name}[:, {new}, :]"
    if len(shape) == len(target) - 1 and broadcasts_to(shape, target[:-1]):
        return f"add the last axis: {name}[..., None]"
    return ""


def _argument(part: str, text: str) -> Argument:
    name, colon, rest = (piece.strip() for piece in part.partition(":"))
    optional = name.endswith("?")
    name = name.rstrip("?")
    if not colon or not _NAME.fullmatch(name):
        raise ValueError(f"spec: {part!r} in {text!r} must be 'name: [kind] sizes', as in 'x: B T d'")
    dims = rest.split()
    kind, limit, extra = _kind(dims, text)
    dims = dims[1:] if kind else dims
    broadcast = dims[:1] == ["to"] and len(dims) > 1
    dims = dims[broadcast:]
    for expression in dims:
        if expression != "..." and not _is_expression(expression):
            raise ValueError(f"spec: {expression!r} in {text!r} is not a size; write a name, a number, 2*d or T+1")
    if dims.count("...") > 1:
        raise ValueError(f"spec: {name} has '...' twice in {text!r}")
    if kind in _OF_ROWS and (not dims or dims[-1] == "..."):
        raise ValueError(f"spec: {part!r} in {text!r} has no rows; {kind} needs a size last, as in 'p: {kind} B d'")
    if kind in _OF_MATRICES and (len(dims) < 2 or dims[-1] != dims[-2]):
        raise ValueError(
            f"spec: {part!r} in {text!r} is not a square matrix; {kind} needs one size twice, as in 'a: {kind} B n n'"
        )
    return Argument(name, kind or "float", tuple(dims), limit, extra, optional, broadcast)


def _kind(dims: list[str], text: str) -> tuple[str, str, int | None]:
    """The kind in the first word ("" if the word is a size), with the limit and the extra value of ids."""
    first = dims[0] if dims else ""
    if found := _INT.fullmatch(first):
        return "int", found[1].replace(" ", ""), int(found[2]) if found[2] else None
    if first == "int":
        raise ValueError(f"spec: int in {text!r} needs a limit, as in 'ids: int<V> B T' for integers from 0 to V - 1")
    if first in KINDS:
        return first, "", None
    near = difflib.get_close_matches(first, KINDS, 1, 0.7)
    if _LONG.fullmatch(first) and (near or len(dims) > 1):
        meant = f"did you mean {near[0]}? " if near else ""
        raise ValueError(
            f"spec: {first!r} in {text!r} is not a kind; {meant}The kinds are {', '.join(NUMBER_KINDS)}, bool and "
            f"int<limit>. If {first!r} is a size, write the kind before it: 'float {' '.join(dims)}'"
        )
    return "", "", None


def _is_expression(expression: str) -> bool:
    factors = re.split(r"[*+]", expression)
    return all(factor.isdigit() or _NAME.fullmatch(factor) for factor in factors)


def _free_names(expression: str, defined: Mapping[str, str]) -> list[str]:
    if expression == "...":
        return ["..."]
    names: list[str] = []
    for name in _NAME.findall(expression):
        names += _free_names(defined[name], defined) if name in defined else [name]
    return names
