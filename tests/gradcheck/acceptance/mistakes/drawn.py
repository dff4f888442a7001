"""Mistakes drawn at random: any function, any of its arguments, any of about thirty kinds of mistake.

The authors of the other lists saw what the checker prints for them. These mistakes were unknown before they were drawn,
so they measure how good the diagnosis is for a new mistake.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.gradcheck.acceptance.mistakes.trial import Trial, changed, names
from tests.gradcheck.acceptance.third_party import THIRD_PARTY, Arrays, ThirdParty

ALONE = r"|element \["  # a single wrong element allows no better diagnosis
ROWS = r"|differs from row to row"
LAST = r"last|one place early" + ALONE
MEAN = r"mean|averag|keep its own|mixes" + ROWS
PLACES = r"shift|revers|order|offset|another place|wrong places" + ROWS
BRANCH = r"where [a-z]\w* |when|branch|above|below|positive|negative" + ALONE


class Way(NamedTuple):
    """A kind of mistake: change(gradient, dy, *inputs), and a pattern that a right diagnosis contains."""

    what: str
    change: Callable[..., Any]
    words: str


def drawn(seed: int = 0, count: int = 100) -> Iterator[Trial]:
    """`count` mistakes, all different."""
    rng, seen = np.random.default_rng([seed, 1982]), set()
    candidates = [s for s in THIRD_PARTY.values() if not s.tolerance]
    while len(seen) < count:
        s = candidates[rng.integers(len(candidates))]
        which, inputs = int(rng.integers(len(s.kinds))), s.draw(rng)
        ways = [*of_the_gradient(inputs[which].shape, which), *of_the_inputs(s, which, inputs)]
        ways += of_dy(s, which, inputs)
        what, change, words = ways[rng.integers(len(ways))]
        name = f"{s.name}, d{names(s.f)[which]}: {what}"
        if name not in seen and _is_wrong(s, which, change, inputs, rng):
            seen.add(name)
            yield Trial(name, "drawn", inputs, s.f, changed(s.vjp, which, change), names(s.f)[which], words)


def _is_wrong(s: ThirdParty, which: int, change: Any, inputs: Arrays, rng: np.random.Generator) -> bool:
    """Whether the change keeps the shape of the gradient and changes its numbers."""
    y = s.f(*inputs)
    dy = tuple(rng.standard_normal(one.shape) for one in y) if isinstance(y, tuple) else rng.standard_normal(y.shape)
    right = s.vjp(dy, *inputs)[which]
    wrong = np.asarray(change(np.array(right), dy, *inputs))
    return wrong.shape == right.shape and not np.allclose(wrong, right, rtol=1e-6, atol=1e-12)


def of_the_gradient(shape: tuple[int, ...], which: int) -> Iterator[Way]:
    """Changes of a right gradient."""
    yield Way("sign", lambda g, *_: -g, r"sign")
    yield Way("twice", lambda g, *_: 2 * g, r"[Tt]wice")
    yield Way("half", lambda g, *_: g / 2, r"half|divided by 2")
    yield Way("1 % too large", lambda g, *_: 1.01 * g, r"factor")
    yield Way("its absolute value", lambda g, *_: np.abs(g), r"sign|abs|" + BRANCH)
    yield Way("times its argument", lambda g, dy, *a: g * a[which], r"times|factor|once too often|multipl")
    yield Way("zero where x < 0", lambda g, dy, *a: np.where(a[which] < 0, 0, g), BRANCH)
    yield Way("twice where x > 0.5", lambda g, dy, *a: np.where(a[which] > 0.5, 2 * g, g), BRANCH)
    if len(shape) == 2 and shape[0] == shape[1]:
        yield Way("transposed", lambda g, *_: g.T, r"transpos")
    for axis, n in enumerate(shape):
        if n > 2:
            last = np.arange(n).reshape([-1] + [1] * (len(shape) - axis - 1)) == n - 1
            yield Way(f"shifted along {axis}", lambda g, *_, axis=axis: np.roll(g, 1, axis), PLACES)
            yield Way(f"its mean along {axis}", lambda g, *_, axis=axis: 0 * g + g.mean(axis, keepdims=True), MEAN)
            yield Way(f"its mean along {axis} taken off", lambda g, *_, axis=axis: g - g.mean(axis, keepdims=True),
                      r"same number|mean|sum")
            yield Way(f"the last along {axis} zero", lambda g, *_, last=last: np.where(last, 0, g), LAST)
            yield Way(f"the last along {axis} by 1.5", lambda g, *_, last=last: np.where(last, 1.5 * g, g), LAST)
            yield Way(f"times {n}", lambda g, *_, n=n: n * g, rf"division by {n}|{n}")
            yield Way(f"divided by {n}", lambda g, *_, n=n: g / n, rf"divided by {n}")


def of_the_inputs(s: ThirdParty, which: int, inputs: Arrays) -> Iterator[Way]:
    """Another input is left out, or its gradient is returned instead."""
    for j, (other, (kind, shape)) in enumerate(zip(names(s.f), s.kinds)):
        if j != which and kind == "real":

            def left_out(g: Any, dy: Any, *a: Any, j: int = j) -> Any:
                return s.vjp(dy, *a[:j], np.ones_like(a[j]), *a[j + 1 :])[which]

            yield Way(f"{other} left out", left_out, rf"\b{other}\b")
        if j != which and shape == inputs[which].shape:
            yield Way(f"that of {other}", lambda g, dy, *a, j=j: s.vjp(dy, *a)[j],
                      rf"d{other}|of {other}|exchang|swap|argument|in the right order|sign")


def of_dy(s: ThirdParty, which: int, inputs: Arrays) -> Iterator[Way]:
    """The backward uses a wrong dy."""
    y = s.f(*inputs)
    if isinstance(y, tuple):
        return
    if y.shape == inputs[which].shape:
        yield Way("dy too much", lambda g, dy, *_: g + dy, r"dy")
        yield Way("times the output", lambda g, dy, *a: g * s.f(*a), r"output|times|factor|once too often")
    for axis, n in enumerate(y.shape):
        if n > 2:
            first = (slice(None),) * axis + (slice(1),)

            def begun_late(g: Any, dy: Any, *a: Any, first: Any = first) -> Any:
                less = dy.copy()
                less[first] = 0
                return s.vjp(less, *a)[which]

            yield Way(f"the first of dy along {axis} not used", begun_late, r"first|place 0|begin")
            yield Way(f"dy reversed along {axis}",
                      lambda g, dy, *a, axis=axis: s.vjp(np.flip(dy, axis).copy(), *a)[which], PLACES)
            yield Way(f"dy shifted along {axis}",
                      lambda g, dy, *a, axis=axis: s.vjp(np.roll(dy, 1, axis), *a)[which], PLACES)
            yield Way(f"the mean of dy along {axis}",
                      lambda g, dy, *a, axis=axis: s.vjp(0 * dy + dy.mean(axis, keepdims=True), *a)[which], MEAN)
