"""One array of each kind that a spec can ask for.

    float        normal numbers                              positive     their exponentials
    distinct     no two alike, none near another or zero     sorted       rows that rise
    simplex      rows of positive numbers that sum to one    unit         rows of length one
    orthogonal   square matrices, Q Q^T = 1                  spd          Q diag(positive) Q^T
    complex      real and imaginary part like float          bool, int    masks and ids

A row is what lies along the last axis. Normal numbers are never zero, never one, never alike and hardly ever beyond
three, and a backward that errs only there would pass. So there are special values: whole rows of small integers, of
zeros of both signs, of a few values again and again, of one sign, large rows and small ones, each mixed with usual
ones. Kinds made from others (spd from positive and orthogonal) become special with them: diagonal, or the identity.
"""

from collections.abc import Callable

import numpy as np

Shape = tuple[int, ...]


def _floats(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    x = np.asarray(rng.standard_normal(shape))
    if special and x.size:
        rows = x.reshape(-1, shape[-1] if shape else 1)
        chosen = rng.integers(len(_SPECIAL), size=len(rows))
        if rng.random() < 0.4:  # what is wrong only where the whole array is small, or all zeros
            chosen[:] = chosen[0]
        for row, index in zip(rows, chosen):
            row[:] = _SPECIAL[index](row, rng)
        if rng.random() < 0.3:  # or all negative
            x[...] = np.abs(x) * rng.choice([-1.0, 1.0])
    return x


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


def _positive(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    if not special:
        return np.asarray(np.exp(rng.standard_normal(shape)))
    x = np.abs(_floats(shape, rng, special))
    return np.where(x == 0, 1.0, x)


def _distinct(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    """Half a step from zero and a step apart, each moved by at most a fifth of a step."""
    count = int(np.prod(shape))
    step = 4.0 / max(count, 4)
    places = rng.permutation(count) - count // 2 + 0.5 + rng.uniform(-0.2, 0.2, count)
    return (step * places * (rng.choice([1e-3, 1.0, 12.0]) if special else 1.0)).reshape(shape)


def _sorted(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    return np.sort(_floats(shape, rng, special), axis=-1)


def _simplex(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    weights = np.exp(_floats(shape, rng, special))  # of numbers far below a hundred: nothing overflows
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _unit(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    x = _floats(shape, rng, special)
    x[..., 0] = np.where((x == 0).all(axis=-1), 1.0, x[..., 0])  # zeros have no direction
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def _orthogonal(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    q, r = np.linalg.qr(rng.standard_normal(shape))
    q = q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]  # all rotations and reflections alike
    if not special or rng.random() < 0.5:
        return np.asarray(q)
    simple = rng.permutation(np.eye(shape[-1])) if rng.random() < 0.5 else np.eye(shape[-1])
    return np.array(np.broadcast_to(simple, shape))


def _spd(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    values, q = _positive(shape[:-1], rng, special), _orthogonal(shape, rng, special)
    a = q * values[..., None, :] @ q.swapaxes(-1, -2)
    return np.asarray(0.5 * (a + a.swapaxes(-1, -2)))


def _complex(shape: Shape, rng: np.random.Generator, special: bool) -> np.ndarray:
    return np.asarray(_floats(shape, rng, special) + 1j * _floats(shape, rng, special))


NUMBERS: dict[str, Callable[[Shape, np.random.Generator, bool], np.ndarray]] = {
    "float": _floats, "positive": _positive, "distinct": _distinct, "sorted": _sorted, "simplex": _simplex,
    "unit": _unit, "orthogonal": _orthogonal, "spd": _spd, "complex": _complex,
}


def draw_numbers(
    kind: str, shape: Shape, rng: np.random.Generator, dtype: np.typing.DTypeLike, special: bool = False
) -> np.ndarray:
    """An array of one of the kinds of `NUMBERS`; complex numbers have two parts of this dtype."""
    values = NUMBERS[kind](shape, rng, special)
    return np.asarray(values, dtype=np.result_type(dtype, np.complex64) if kind == "complex" else dtype)


def draw_mask(shape: Shape, rng: np.random.Generator, special: bool = False) -> np.ndarray:
    """True where one may look; where there are several rows, one of them sees nothing."""
    mask = np.asarray(rng.random(shape) < 0.65)
    rows = mask.reshape(-1, shape[-1]) if shape and mask.size else mask.reshape(1, -1)
    if len(rows) > 1:
        rows[rng.integers(len(rows))] = False
    elif mask.size:  # a single row is hidden whole only now and then
        rows[0, rng.integers(rows.shape[1])] = rng.random() < 0.9
    if special and rng.random() < 0.3:
        mask[...] = rng.random() < 0.5
    return mask


def draw_ids(
    shape: Shape, limit: int, extra: int | None, rng: np.random.Generator, special: bool = False
) -> np.ndarray:
    """Integers below the limit, one of them twice, and `extra` in some places."""
    ids = np.asarray(rng.integers(0, limit, shape))
    flat = ids.reshape(-1)
    if special and rng.random() < 0.3:
        flat[:] = rng.choice([flat[0] if flat.size else 0, 0, limit - 1], 1 if rng.random() < 0.5 else flat.size)
    if extra is not None and flat.size:
        flat[rng.random(flat.size) < 0.3] = extra
    if flat.size > 1:  # a repeat for certain
        first, second = rng.choice(flat.size, 2, replace=False)
        flat[second] = flat[first]
    return ids
