"""Random arrays for a line of shapes (numpy_attention/shapes.py): test inputs of a function.

    >>> example = draw_example("x: B T d, w: d", seed=3)
    >>> sorted(example), example["x"].shape[-1] == example["w"].shape[0]
    (['w', 'x'], True)

A kind is one of

    float        normally distributed (the default)          positive     exponentials of normal numbers
    distinct     all different from each other and from 0    sorted       rows in ascending order
    simplex      rows of positive numbers that sum to one    unit         rows of length one
    orthogonal   square matrices, Q Q^T = 1                  spd          Q diag(positive) Q^T
    complex      real and imaginary part like float          bool         masks; some rows are all False
    int<limit>, int<limit|extra>                             ids

A row is a slice along the last axis. Normally distributed numbers are never zero, one or equal, and rarely larger than
three. A backward with a mistake only at such values would pass. So there are special values: rows of small integers, of
zeros of both signs, of a few repeated values, of one sign, of large or of small numbers, mixed with other rows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from numpy_attention.shapes import Shape, Size, Sizes, Spec, parse

__all__ = ["DrawnInputs", "Shape", "Size", "Sizes", "Spec", "draw_example", "draw_inputs", "draw_sizes", "parse"]
_SPECIAL: tuple[Callable[[np.ndarray, np.random.Generator], np.ndarray], ...] = (
    lambda row, rng: row,
    lambda row, rng: rng.integers(-2, 3, row.size),
    lambda row, rng: rng.integers(-1, 2, row.size) * rng.choice([-1.0, 1.0], row.size),  # -0.0 among them
    lambda row, rng: np.where(rng.random(row.size) < 0.5, rng.choice([0.0, -0.0, 1.0, -1.0], row.size), row),
    lambda row, rng: rng.choice(row[:2], row.size),
    lambda row, rng: np.full(row.size, row[0]),
    lambda row, rng: np.zeros(row.size) * rng.choice([-1.0, 1.0], row.size),
    lambda row, rng: row * rng.choice([4.0, 12.0]),
    lambda row, rng: row * rng.choice([1e-3, 1e-6]),
    lambda row, rng: -np.abs(row),
    lambda row, rng: np.abs(row),
)
FEW = 400  # elements of all arrays together, if the sizes allow so few


def _floats(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    x = np.asarray(rng.standard_normal(shape))
    if special and x.size:
        rows = x.reshape(-1, shape[-1] if shape else 1)
        chosen = rng.integers(len(_SPECIAL), size=len(rows))
        if rng.random() < 0.4:  # one kind of row in the whole array, such as all zeros
            chosen[:] = chosen[0]
        for row, index in zip(rows, chosen):
            row[:] = _SPECIAL[index](row, rng)
        if rng.random() < 0.3:  # or all negative
            x[...] = np.abs(x) * rng.choice([-1.0, 1.0])
    return x


def _positive(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    if not special:
        return np.asarray(np.exp(rng.standard_normal(shape)))
    x = np.abs(_floats(shape, rng, special))
    return np.where(x == 0, 1.0, x)


def _distinct(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    """Evenly spaced values, half a step away from zero, each moved by at most a fifth of a step; in random order."""
    count = int(np.prod(shape))
    step = 4.0 / max(count, 4)
    places = rng.permutation(count) - count // 2 + 0.5 + rng.uniform(-0.2, 0.2, count)
    return (step * places * (rng.choice([1e-3, 1.0, 12.0]) if special else 1.0)).reshape(shape)


def _simplex(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    weights = np.exp(_floats(shape, rng, special))  # the numbers are far below 100, so exp does not overflow
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _unit(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    x = _floats(shape, rng, special)
    x[..., 0] = np.where((x == 0).all(axis=-1), 1.0, x[..., 0])  # zeros have no direction
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def _orthogonal(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    q, r = np.linalg.qr(rng.standard_normal(shape))
    return np.asarray(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :])  # all rotations equally likely


def _spd(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    values, q = _positive(shape[:-1], rng, special), _orthogonal(shape, rng, special)
    a = q * values[..., None, :] @ q.swapaxes(-1, -2)
    return np.asarray(0.5 * (a + a.swapaxes(-1, -2)))


NUMBERS: dict[str, Callable[[Shape, np.random.Generator, bool], np.ndarray]] = {
    "float": _floats, "positive": _positive, "distinct": _distinct,
    "sorted": lambda *how: np.sort(_floats(*how), axis=-1),
    "simplex": _simplex, "unit": _unit, "orthogonal": _orthogonal, "spd": _spd,
    "complex": lambda *how: _floats(*how) + 1j * _floats(*how),
}


def draw_numbers(kind: str, shape: Shape, rng: np.random.Generator, dtype: Any, special: bool = False) -> np.ndarray:
    """An array of a kind in `NUMBERS`; real and imaginary part of complex numbers have this dtype."""
    values = NUMBERS[kind](shape, rng, special)
    return np.asarray(values, dtype=np.result_type(dtype, np.complex64) if kind == "complex" else dtype)


def draw_mask(shape: Shape, rng: np.random.Generator, special: bool = False) -> np.ndarray:
    """A mask, True where attention is allowed. If there are several rows, one row is all False."""
    mask = np.asarray(rng.random(shape) < 0.65)
    rows = mask.reshape(-1, shape[-1]) if shape and mask.size else mask.reshape(1, -1)
    if len(rows) > 1:
        rows[rng.integers(len(rows))] = False
    elif mask.size:  # a single row is rarely all False
        rows[0, rng.integers(rows.shape[1])] = rng.random() < 0.9
    if special and rng.random() < 0.3:
        mask[...] = rng.random() < 0.5
    return mask


def draw_ids(
    shape: Shape, limit: int, extra: int | None, rng: np.random.Generator, special: bool = False
) -> np.ndarray:
    """Integers below the limit, with at least one repeat, and with `extra` in some places."""
    ids = np.asarray(rng.integers(0, limit, shape))
    flat = ids.reshape(-1)
    if special and rng.random() < 0.3:
        flat[:] = rng.choice([flat[0] if flat.size else 0, 0, limit - 1], 1 if rng.random() < 0.5 else flat.size)
    if extra is not None and flat.size:
        flat[rng.random(flat.size) < 0.3] = extra
    if flat.size > 1:  # ensure one repeat
        first, second = rng.choice(flat.size, 2, replace=False)
        flat[second] = flat[first]
    return ids


def draw_sizes(
    spec: Spec | str, rng: np.random.Generator, *, fixed: Mapping[str, Size] | None = None,
    at_least: Mapping[str, int] | None = None, largest: int = 5,
) -> Sizes:
    """Draw different sizes (equal sizes hide a wrong transpose); every fourth draw contains a size of 1."""
    spec = parse(spec) if isinstance(spec, str) else spec
    names = [name for name in spec.size_names if name not in (fixed or {})]
    leading = int(rng.integers(0, 4)) if "..." in names else 0
    count = len(names) + leading
    pool = [int(size) for size in rng.permutation(np.arange(2, 2 + max(largest - 1, count)))]
    if pool and rng.random() < 0.25:
        pool[int(rng.integers(max(count, 1)))] = 1
    sizes: Sizes = dict(fixed or {})
    for name in names:
        least = max((at_least or {}).get(name, 1), dict(spec.minima).get(name, 1))
        sizes[name] = tuple(pool.pop() for _ in range(leading)) if name == "..." else max(pool.pop(), least)
    return sizes


def draw_inputs(
    spec: Spec | str, sizes: Mapping[str, Size], seed: int | np.random.Generator = 0,
    dtype: np.typing.DTypeLike = np.float64, *, special: bool = False,
) -> dict[str, np.ndarray]:
    """Draw one array per argument: normal floats, masks with rows that are all False, ids with repeats.

    With `special`, the values include zeros, ties, exact integers, large rows and small rows, and arrays of equal shape
    have some equal elements.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    rng = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    for argument in spec.arguments:
        shape = spec.shape(argument, sizes)
        if argument.broadcast and shape:  # broadcastable to this shape: some axes of length 1, or without first axes
            some = tuple(1 if rng.random() < 0.3 else size for size in shape)
            shape = some[int(rng.integers(len(some) + (argument.kind in ("float", "bool")))) :]
        if argument.kind == "bool":
            inputs[argument.name] = draw_mask(shape, rng, special)
        elif argument.kind == "int":
            limit = spec.size(argument.limit, sizes)
            inputs[argument.name] = draw_ids(shape, limit, argument.extra, rng, special)
        else:
            inputs[argument.name] = draw_numbers(argument.kind, shape, rng, dtype, special)
    if special:
        _copy_some_elements(spec, inputs, rng)
    return inputs


def _copy_some_elements(spec: Spec, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Copy some elements to another array of the same kind and shape, to find mistakes where x == y."""
    before: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
    for argument in spec.arguments:
        array = inputs[argument.name]
        other = before.setdefault((argument.kind, array.shape), array)
        if argument.kind in ("float", "positive", "complex") and other is not array and rng.random() < 0.5:
            np.copyto(array, other, where=rng.random(array.shape) < 0.5)


class DrawnInputs(dict[str, Any]):
    """The drawn arrays by argument name; `sizes`, `seed` and `special` repeat the draw."""

    def __init__(self, spec: Spec, sizes: Sizes, seed: int, arrays: Mapping[str, Any], special: bool = False) -> None:
        super().__init__(arrays)
        self.spec, self.sizes, self.seed, self.special = spec, sizes, seed, special

    def __repr__(self) -> str:
        shapes = (f"{one}: {'None' if x is None else f'{x.dtype} {x.shape}'}" for one, x in self.items())
        chosen = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"<sizes {chosen}; seed {self.seed}{'; special values' * self.special}; {', '.join(shapes)}>"


def draw_example(
    spec: Spec | str, seed: int, *, fixed: Mapping[str, Size] | None = None,
    at_least: Mapping[str, int] | None = None, largest: int = 5, dtype: Any = np.float64, special: bool = True,
) -> DrawnInputs:
    """The example of this seed. 3 of 4 examples have special values; 1 of 3 optional arguments is None.

    The sizes are the first of twelve draws with few elements, else the smallest.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    rng = np.random.default_rng([seed, 17])
    draws = [draw_sizes(spec, rng, fixed=fixed, at_least=at_least, largest=largest) for _ in range(12)]
    counts = [sum(int(np.prod(shape)) for shape in spec.shapes(sizes).values()) for sizes in draws]
    sizes = next((sizes for sizes, count in zip(draws, counts) if count <= FEW), draws[int(np.argmin(counts))])
    special = special and seed % 4 != 0
    rng = np.random.default_rng([seed, 19])
    absent = [argument.name for argument in spec.arguments if argument.optional and rng.random() < 1 / 3]
    arrays = draw_inputs(spec, sizes, seed, dtype, special=special) | dict.fromkeys(absent)
    return DrawnInputs(spec, sizes, seed, arrays, special)
