"""The verdict of an element must not depend on the other elements of its array."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.gradcheck.acceptance.corners.corner import NOT_RIGHT, NOT_WRONG, Array, Corner, array, in_a_buffer, times


def sqrt_vjp(dy: Array, x: Array) -> Array:
    return dy / (2 * np.sqrt(x))


def x_log_x(x: Array) -> Array:
    return x * np.log(x)


def x_log_x_vjp(dy: Array, x: Array) -> Array:
    return dy * (np.log(x) + 1)


def log_vjp(dy: Array, x: Array) -> Array:
    return dy / x


SCALES = array(1e15, 1.0)


def scaled(x: Array) -> Array:
    return SCALES * x


def scaled_vjp(dy: Array, x: Array) -> Array:
    return SCALES * dy


def scaled_sum(x: Array) -> Array:
    return (SCALES * x).sum()


def company() -> Iterator[Corner]:
    case = partial(Corner, "an element near the end of the domain, alone and in company")
    for x in (array(1e-20, 1.0), array(1e-20), array(1e-18, 1.0), array(1e-18)):
        slow = x[0] > 1e-20  # at 1e-20 a checker errs more easily
        for name, f, vjp in [("sqrt", np.sqrt, sqrt_vjp), ("x log x", x_log_x, x_log_x_vjp)]:
            wrong = times(2, vjp, where=lambda x: x < 0.5)
            for g, how in [(f, ""), (in_a_buffer(f), " in a float buffer")]:
                yield case(f"{name} at {x.tolist()}{how}, right", g, vjp, (x,), NOT_WRONG, slow=slow)
                yield case(f"{name} at {x.tolist()}{how}, doubled below 0.5", g, wrong, (x,), "wrong", slow=slow)

    case = partial(Corner, "gradients of very different sizes in one array")
    for name, f, vjp, x in [
        ("[1e15, 1] * x", scaled, scaled_vjp, array(0.3, 0.7)),
        ("sum([1e15, 1] * x)", scaled_sum, scaled_vjp, array(0.3, 0.7)),
        ("log at [1e-15, 1]", np.log, log_vjp, array(1e-15, 1.0)),
        ("log at [1e-30, 1]", np.log, log_vjp, array(1e-30, 1.0)),
    ]:
        wrong = times(2, vjp, where=lambda x: np.array([False, True]))
        # The sum itself has no more digits than its large term, so differences cannot see the small one.
        known = "wrong" if f is not scaled_sum else NOT_RIGHT
        yield case(f"{name}, right", f, vjp, (x,), "right")
        yield case(f"{name}, twice the small gradient", f, wrong, (x,), "wrong")
        yield case(f"{name} in a float buffer, right", in_a_buffer(f), vjp, (x,), NOT_WRONG)
        yield case(f"{name} in a float buffer, twice the small gradient", in_a_buffer(f), wrong, (x,), known)
