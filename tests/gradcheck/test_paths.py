"""A wrong derivative of one step of the forward: the diagnosis quotes the step and says what is wrong with it."""

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gradcheck.planted import diagnosis_of

Array = np.ndarray
Vjp = Callable[..., Any]


def gate(x: Array, w: Array, u: Array) -> Array:
    z = 1 / (1 + np.exp(-(x @ w)))
    h = np.tanh(x @ u)
    return np.asarray(z * h)


def gate_back(
    g: Array, x: Array, w: Array, u: Array, of_z: Vjp = lambda z: z * (1 - z), of_h: Vjp = lambda h: 1 - h * h,
    by_z: Vjp = lambda z: z, to_x: Vjp = lambda first, second: first + second,
) -> tuple[Array, Array, Array]:
    z, h = 1 / (1 + np.exp(-(x @ w))), np.tanh(x @ u)
    dz, dh = g * h * of_z(z), g * by_z(z) * of_h(h)
    return to_x(dz @ w.T, dh @ u.T), x.T @ dz, x.T @ dh


def recurrent(x: Array, a: Array) -> Array:
    h = np.zeros_like(x[0])
    for one in x:
        h = a * h + one
    return h


def recurrent_back(g: Array, x: Array, a: Array) -> tuple[Array, Array]:
    states = [np.zeros_like(x[0])]
    for one in x:
        states.append(a * states[-1] + one)
    dx, da = np.zeros_like(x), np.zeros_like(a)
    for t in range(len(x) - 1, -1, -1):
        dx[t] = g
        da += g * states[t + 1]
        g = g * a
    return dx, da


RNG = np.random.default_rng(3)
X, W, U = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))
SERIES, A = RNG.standard_normal((4, 3)), RNG.uniform(0.5, 1, 3)


@pytest.mark.parametrize(("said", "f", "vjp", "inputs"), [
    ("dx: in `z * h`, the path through `z` is missing",
     gate, lambda *a: gate_back(*a, to_x=lambda first, second: second), (X, W, U)),
    ("dx: in `z * h`, the path through `h` has the wrong sign",
     gate, lambda *a: gate_back(*a, to_x=lambda first, second: first - second), (X, W, U)),
    ("dx and du: in `z * h`, the factor `z` is left out",
     gate, lambda *a: gate_back(*a, by_z=np.ones_like), (X, W, U)),
    ("dx and du: in `np.tanh(x @ u)`, the derivative is wrong: y (1 - y) (of a sigmoid)",
     gate, lambda *a: gate_back(*a, of_h=lambda h: h * (1 - h)), (X, W, U)),
    ("dx and dw: in `1 / (1 + np.exp(-(x @ w)))`, the derivative is wrong: 1 - y**2 (of a tanh)",
     gate, lambda *a: gate_back(*a, of_z=lambda z: 1 - z * z), (X, W, U)),
    ("da: in `a * h`, the backward uses `a * h + one` in place of `h`",
     recurrent, recurrent_back, (SERIES, A)),
], ids=itertools.count())
def test_step_is_quoted(said: str, f: Vjp, vjp: Vjp, inputs: tuple[Array, ...]) -> None:
    assert said in re.sub(r" \(line \d+\)", "", diagnosis_of(f, vjp, *inputs))


def test_line_of_the_step_is_named() -> None:
    lines, first = inspect.getsourcelines(gate)
    line = first + next(i for i, one in enumerate(lines) if "z * h" in one)
    said = diagnosis_of(gate, lambda *a: gate_back(*a, to_x=lambda first, second: second), X, W, U)
    assert f"in `z * h` (line {line}), the path through `z` is missing" in said
