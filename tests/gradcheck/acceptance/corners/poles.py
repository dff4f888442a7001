"""Close to a pole, a difference may step over it, and a float has few digits of the distance."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.gradcheck.acceptance.corners.corner import NOT_RIGHT, NOT_WRONG, Array, Corner, array, in_a_buffer, times


def pole(x: Array) -> Array:
    return 1 / (x - 1)


def pole_vjp(dy: Array, x: Array) -> Array:
    return -dy / (x - 1) ** 2


def solve_vjp(dy: Array, a: Array, b: Array) -> Any:
    db = np.linalg.solve(a.T, dy)
    return -np.outer(db, np.linalg.solve(a, b)), db


def tan_vjp(dy: Array, x: Array) -> Array:
    return dy / np.cos(x) ** 2


def poles() -> Iterator[Corner]:
    case, buffered = partial(Corner, "1/(x-1) in a float buffer"), in_a_buffer(pole)
    for distance in (1e-4, 1e-6, 1e-7):
        x = array(1 + distance)
        yield case(f"x = 1+{distance:g}, right", buffered, pole_vjp, (x,), NOT_WRONG)
        for factor, what in [(1.01, "1 % off"), (0.5, "halved"), (0.0, "zero")]:
            yield case(f"x = 1+{distance:g}, {what}", buffered, times(factor, pole_vjp), (x,), NOT_RIGHT)

    case = partial(Corner, "close to a pole")
    close, tangent = array(1 + 1e-10, 2.0), array(np.pi / 2 - 1e-12)
    singular = np.array([[1.0, 1.0], [1.0, 1 + 1e-10]])
    for name, f, vjp, inputs in [
        ("1/(x-1), x = [1+1e-10, 2]", pole, pole_vjp, (close,)),
        ("1/(x-1) in a float buffer, x = [1+1e-10, 2]", buffered, pole_vjp, (close,)),
        ("tan(pi/2 - 1e-12)", np.tan, tan_vjp, (tangent,)),
        ("tan(pi/2 - 1e-12) in a float buffer", in_a_buffer(np.tan), tan_vjp, (tangent,)),
        ("solve of [[1, 1], [1, 1+1e-10]]", np.linalg.solve, solve_vjp, (singular, array(1.0, 2.0))),
    ]:
        yield case(f"{name}, right", f, vjp, inputs, NOT_WRONG)
        yield case(f"{name}, doubled", f, times(2, vjp), inputs, NOT_RIGHT)
