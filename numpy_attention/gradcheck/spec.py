"""A little language for the inputs of a function: kinds and shapes that agree by name.

    q: B H T_q d_k, k: B H T_k d_k, v: B H T_k d_v, mask: bool T_q T_k
    x: ... d, gamma: d, b?: d                      `...` is any number of leading axes, `b?` may be absent
    ids: int<V> B T, targets: int<V|-100> B T      integers below V, with repeats; a few of them -100
    q: B H T d, k: B H_kv T d; H = G*H_kv          a size may be a product or a sum of others

A kind is one of

    float (the default)  positive  distinct  sorted  simplex  unit  complex      an array, or rows of it (`draws.py`)
    spd  orthogonal                                                              matrices; the last two sizes are alike
    bool  int<limit>  int<limit|extra>                                           masks, some rows all False; ids

In front of sizes a word of four or more small letters is a kind, and an error if there is none of that name: a kind
that is misspelt must not become a size. A size of such a name needs its kind in front: `x: float batch time d`.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from numpy_attention.gradcheck.draws import NUMBERS, draw_ids, draw_mask, draw_numbers

Sizes = dict[str, int | tuple[int, ...]]

_NAME = re.compile(r"[A-Za-z_]\w*")
_INT = re.compile(r"int<([^<>|]+)(?:\|(-?\d+))?>")
_KINDS = [*NUMBERS, "bool", "int"]
_LONG = re.compile(r"[a-z]{4,}")  # what reads as a word rather than as a size
_OF_ROWS, _OF_MATRICES = ("sorted", "simplex", "unit"), ("spd", "orthogonal")


@dataclass(frozen=True)
class Argument:
    """One argument of a spec: its name, kind, and the expressions of its axes."""

    name: str
    kind: str
    dims: tuple[str, ...]
    limit: str = ""
    extra: int | None = None
    optional: bool = False


@dataclass(frozen=True)
class Spec:
    """A parsed spec: arguments in order, and the sizes that are defined by others."""

    text: str
    arguments: tuple[Argument, ...]
    definitions: tuple[tuple[str, str], ...]

    @property
    def size_names(self) -> tuple[str, ...]:
        """The names to choose sizes for, in order of appearance; `...` stands for the leading axes."""
        defined = dict(self.definitions)
        found: dict[str, None] = {}
        for argument in self.arguments:
            for expression in (*argument.dims, argument.limit):
                for name in _free_names(expression, defined):
                    found[name] = None
        return tuple(found)

    def shapes(self, sizes: Mapping[str, int | tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The shape of each argument for these sizes."""
        return {argument.name: self.shape(argument, sizes) for argument in self.arguments}

    def shape(self, argument: Argument, sizes: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()
        for expression in argument.dims:
            if expression == "...":
                leading = sizes["..."]
                shape += leading if isinstance(leading, tuple) else (leading,)
            else:
                shape += (self.size(expression, sizes),)
        return shape

    def size(self, expression: str, sizes: Mapping[str, int | tuple[int, ...]]) -> int:
        """The value of an axis expression such as `2*d_k` or `T+1`."""
        defined = dict(self.definitions)
        total = 0
        for term in expression.split("+"):
            product = 1
            for factor in term.split("*"):
                if factor.isdigit():
                    product *= int(factor)
                elif factor in defined:
                    product *= self.size(defined[factor], sizes)
                else:
                    value = sizes[factor]
                    if not isinstance(value, int):
                        raise ValueError(f"spec: size {factor} must be an int, got {value!r}")
                    product *= value
            total += product
        return total


def parse(text: str) -> Spec:
    """The spec that a text stands for.

    Raises: ValueError that quotes the place of a mistake.
    """
    head, *tails = text.split(";")
    arguments = tuple(_argument(part.strip(), text) for part in head.split(",") if part.strip())
    if not arguments:
        raise ValueError(f"spec: no arguments in {text!r}; write for example 'x: B T d'")
    names = [argument.name for argument in arguments]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"spec: {name} appears twice in {text!r}")
    definitions = []
    for tail in tails:
        name, equals, expression = (piece.strip() for piece in tail.partition("="))
        expression = expression.replace(" ", "")
        if not equals or not _NAME.fullmatch(name) or not _is_expression(expression):
            raise ValueError(f"spec: {tail.strip()!r} in {text!r} must read 'size = product', as in 'H = G*H_kv'")
        definitions.append((name, expression))
    return Spec(text, arguments, tuple(definitions))


def draw_sizes(
    spec: Spec | str,
    rng: np.random.Generator,
    *,
    fixed: Mapping[str, int | tuple[int, ...]] | None = None,
    at_least: Mapping[str, int] | None = None,
    largest: int = 5,
) -> Sizes:
    """Draw sizes that are all different (equal sizes hide transposes), one in four times with a single 1 among them."""
    spec = parse(spec) if isinstance(spec, str) else spec
    names = [name for name in spec.size_names if name not in (fixed or {})]
    leading = int(rng.integers(0, 4)) if "..." in names else 0
    count = len(names) + leading
    pool = [int(size) for size in rng.permutation(np.arange(2, 2 + max(largest - 1, count)))]
    if pool and rng.random() < 0.25:
        pool[int(rng.integers(max(count, 1)))] = 1
    sizes: Sizes = dict(fixed or {})
    for name in names:
        if name == "...":
            sizes[name] = tuple(pool.pop() for _ in range(leading))
        else:
            sizes[name] = max(pool.pop(), (at_least or {}).get(name, 1))
    return sizes


def draw_inputs(
    spec: Spec | str,
    sizes: Mapping[str, int | tuple[int, ...]],
    seed: int | np.random.Generator = 0,
    dtype: np.typing.DTypeLike = np.float64,
    *,
    special: bool = False,
) -> dict[str, np.ndarray]:
    """Draw one array per argument: normal floats, masks with rows that see nothing, ids with repeats.

    With `special` there are zeros, ties, exact integers, large rows and small ones among them, and arrays of one shape
    that agree here and there.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    rng = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    for argument in spec.arguments:
        shape = spec.shape(argument, sizes)
        if argument.kind == "bool":
            inputs[argument.name] = draw_mask(shape, rng, special)
        elif argument.kind == "int":
            limit = spec.size(argument.limit, sizes)
            inputs[argument.name] = draw_ids(shape, limit, argument.extra, rng, special)
        else:
            inputs[argument.name] = draw_numbers(argument.kind, shape, rng, dtype, special)
    if special:
        _agree_here_and_there(spec, inputs, rng)
    return inputs


def _agree_here_and_there(spec: Spec, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Copy some elements of an array to the next of its kind and shape: what is wrong where x == y must show."""
    before: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
    for argument in spec.arguments:
        array = inputs[argument.name]
        other = before.setdefault((argument.kind, array.shape), array)
        if argument.kind in ("float", "positive", "complex") and other is not array and rng.random() < 0.5:
            np.copyto(array, other, where=rng.random(array.shape) < 0.5)


def _argument(part: str, text: str) -> Argument:
    name, colon, rest = (piece.strip() for piece in part.partition(":"))
    optional = name.endswith("?")
    name = name.rstrip("?")
    if not colon or not _NAME.fullmatch(name):
        raise ValueError(f"spec: {part!r} in {text!r} must read 'name: [kind] sizes', as in 'x: B T d'")
    dims = rest.split()
    kind, limit, extra = _kind(dims, text)
    dims = dims[1:] if kind else dims
    for expression in dims:
        if expression != "..." and not _is_expression(expression):
            raise ValueError(f"spec: {expression!r} in {text!r} is no size; write a name, a number, 2*d or T+1")
    if dims.count("...") > 1:
        raise ValueError(f"spec: {name} has '...' twice in {text!r}")
    if kind in _OF_ROWS and (not dims or dims[-1] == "..."):
        raise ValueError(f"spec: {part!r} in {text!r} has no rows; {kind} needs a size last, as in 'p: {kind} B d'")
    if kind in _OF_MATRICES and (len(dims) < 2 or dims[-1] != dims[-2]):
        raise ValueError(
            f"spec: {part!r} in {text!r} is no square matrix; {kind} needs one size twice, as in 'a: {kind} B n n'"
        )
    return Argument(name, kind or "float", tuple(dims), limit, extra, optional)


def _kind(dims: list[str], text: str) -> tuple[str, str, int | None]:
    """The kind that the first word says ("" if it is a size), with the limit and the extra value of ids."""
    first = dims[0] if dims else ""
    if found := _INT.fullmatch(first):
        return "int", found[1].replace(" ", ""), int(found[2]) if found[2] else None
    if first == "int":
        raise ValueError(f"spec: int in {text!r} needs a limit, as in 'ids: int<V> B T' for integers from 0 to V - 1")
    if first in _KINDS:
        return first, "", None
    near = difflib.get_close_matches(first, _KINDS, 1, 0.7)
    if _LONG.fullmatch(first) and (near or len(dims) > 1):
        meant = f"did you mean {near[0]}? " if near else ""
        raise ValueError(
            f"spec: {first!r} in {text!r} is no kind; {meant}There are {', '.join(NUMBERS)}, bool and int<limit>. "
            f"If it is a size, say the kind first: 'float {' '.join(dims)}'"
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
