"""A little language for the inputs of a function: kinds and shapes that agree by name.

    q: B H T_q d_k, k: B H T_k d_k, v: B H T_k d_v, mask: bool T_q T_k
    x: ... d, gamma: d, b?: d                      `...` is any number of leading axes, `b?` may be absent
    ids: int<V> B T, targets: int<V|-100> B T      integers below V, with repeats; a few of them -100
    q: B H T d, k: B H_kv T d; H = G*H_kv          a size may be a product or a sum of others

A kind is `float` (the default), `positive`, `bool` (a mask, some of its rows all False) or `int<limit>`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Sizes = dict[str, int | tuple[int, ...]]

_NAME = re.compile(r"[A-Za-z_]\w*")
_KIND = re.compile(r"(float|positive|bool|int<([^<>|]+)(?:\|(-?\d+))?>)\Z")


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
    dtype: type[np.floating] | np.dtype = np.float64,
) -> dict[str, np.ndarray]:
    """Draw one array per argument: normal floats, masks with rows that see nothing, ids with repeats."""
    spec = parse(spec) if isinstance(spec, str) else spec
    rng = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    for argument in spec.arguments:
        shape = spec.shape(argument, sizes)
        if argument.kind == "bool":
            inputs[argument.name] = _mask(shape, rng)
        elif argument.kind == "int":
            inputs[argument.name] = _ids(shape, spec.size(argument.limit, sizes), argument.extra, rng)
        else:
            values = rng.standard_normal(shape)
            inputs[argument.name] = np.asarray(np.exp(values) if argument.kind == "positive" else values, dtype=dtype)
    return inputs


def _mask(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    mask = np.asarray(rng.random(shape) < 0.65)
    rows = mask.reshape(-1, shape[-1]) if shape and mask.size else mask.reshape(1, -1)
    if len(rows) > 1:
        rows[rng.integers(len(rows))] = False
    elif mask.size:  # a single row is hidden whole only now and then
        rows[0, rng.integers(rows.shape[1])] = rng.random() < 0.9
    return mask


def _ids(shape: tuple[int, ...], limit: int, extra: int | None, rng: np.random.Generator) -> np.ndarray:
    ids = np.asarray(rng.integers(0, limit, shape))
    flat = ids.reshape(-1)
    if extra is not None and flat.size:
        flat[rng.random(flat.size) < 0.3] = extra
    if flat.size > 1:  # a repeat for certain
        first, second = rng.choice(flat.size, 2, replace=False)
        flat[second] = flat[first]
    return ids


def _argument(part: str, text: str) -> Argument:
    name, colon, rest = (piece.strip() for piece in part.partition(":"))
    optional = name.endswith("?")
    name = name.rstrip("?")
    if not colon or not _NAME.fullmatch(name):
        raise ValueError(f"spec: {part!r} in {text!r} must read 'name: [kind] sizes', as in 'x: B T d'")
    dims = rest.split()
    kind, limit, extra = "float", "", None
    found = _KIND.match(dims[0]) if dims else None
    if found:
        dims = dims[1:]
        kind = found[1].partition("<")[0]
        limit = (found[2] or "").replace(" ", "")
        extra = int(found[3]) if found[3] else None
    for expression in dims:
        if expression != "..." and not _is_expression(expression):
            raise ValueError(f"spec: {expression!r} in {text!r} is no size; write a name, a number, 2*d or T+1")
    if dims.count("...") > 1:
        raise ValueError(f"spec: {name} has '...' twice in {text!r}")
    return Argument(name, kind, tuple(dims), limit, extra, optional)


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
