"""Results that are not a gradient, forwards that are not a function, backwards with side effects.

    form            None, a wrong name, a missing gradient, complex numbers, a wrong shape
    no function     noise, dropout without a seed, steps too coarse to see a slope
    structure       dy or an input changed, a different result at the second call, right only for contiguous dy
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.gradcheck.acceptance.mistakes.trial import Trial, named, names, seeded
from tests.gradcheck.acceptance.third_party import THIRD_PARTY


def form() -> Iterator[Trial]:
    """Results that are not a gradient, for functions of one argument and of several."""
    for function, which in [("softplus", 0), ("solve", 1), ("conv2d", 2), ("polynomial", 0)]:
        s = THIRD_PARTY[function]
        arrays, arguments = s.draw(seeded(function)), names(s.f)

        def wrong_with(change: Callable[[Any], Any], s: Any = s, which: int = which) -> Callable[..., Any]:
            def with_one(dy: Any, *inputs: np.ndarray) -> Any:
                grads = list(s.vjp(dy, *inputs))
                grads[which] = change(grads[which])
                return tuple(grads)

            return with_one

        def as_dict(rename: Callable[[str], str | None], s: Any = s, arguments: Any = arguments) -> Callable[..., Any]:
            def by_name(dy: Any, *inputs: np.ndarray) -> Any:
                grads = zip(arguments, s.vjp(dy, *inputs))
                return {rename(name): grad for name, grad in grads if rename(name)}

            return by_name

        last = arguments[which]
        for what, wrong, words in [
            ("None", wrong_with(lambda g: None), r"no gradient|None|0 gradients|returned \d"),
            ("complex", wrong_with(lambda g: g + 1j), r"complex"),
            ("dict with dx for x", as_dict(lambda name: "d" + name), r"called|names|keys|arguments"),
            ("dict without a key", as_dict(lambda name, last=last: None if name == last else name),
             r"no gradient|missing"),
            ("one axis too many", wrong_with(lambda g: g[None]), r"shape"),
            ("one gradient too many", lambda dy, *a, s=s: (*s.vjp(dy, *a), dy), r"returned \d|one each|gradients for"),
        ]:
            yield Trial(f"{function}: {what}", "form", arrays, s.f, wrong, last, words)


def no_function() -> Iterator[Trial]:
    """Forwards that have no derivative."""
    for function, noise in [
        ("softplus", 0.1), ("conv1d", 0.1), ("logsumexp", 1e-3), ("solve", 1e-6), ("cumulative_sum", 1e-9)
    ]:
        s = THIRD_PARTY[function]
        rng = np.random.default_rng(0)

        def noisy(*arrays: np.ndarray, s: Any = s, rng: Any = rng, noise: float = noise) -> Any:
            y = s.f(*arrays)
            return y + noise * rng.standard_normal(y.shape)

        yield Trial(f"{function}: noise of {noise:g}, a gradient of zeros", "no function", s.draw(seeded(function)),
                    named(s.f, noisy), lambda dy, *arrays: tuple(np.zeros_like(x) for x in arrays), "",
                    r"two calls|random|noise|no function|seed")
    for function in ("glu", "average_pool", "bilinear"):
        s = THIRD_PARTY[function]
        rng = np.random.default_rng(1)

        def dropped(*arrays: np.ndarray, s: Any = s, rng: Any = rng) -> Any:
            y = s.f(*arrays)
            return 2 * y * (rng.random(y.shape) < 0.5)

        yield Trial(f"{function}: unseeded dropout", "no function", s.draw(seeded(function)), named(s.f, dropped),
                    s.vjp, "", r"two calls|random|noise|no function|seed")
    for function, which, what, rough in [
        ("softplus", 0, "rounded to 4 digits, gradient without rounding", lambda y, x: np.round(y, 4)),
        ("logsumexp", 0, "sawtooth of 1e-3, gradient without it", lambda y, x: y + 1e-3 * np.sin(1e9 * x).sum(-1)),
    ]:
        s = THIRD_PARTY[function]

        def jagged(x: np.ndarray, s: Any = s, rough: Any = rough) -> Any:
            return rough(s.f(x), x)

        yield Trial(f"{function}: {what}", "no function", s.draw(seeded(function)), named(s.f, jagged),
                    s.vjp, names(s.f)[which], r"noise|nois|resolve|step|rough|zero|flat|constant")
    s = THIRD_PARTY["total_variation"]
    calls = [0]

    def warms_up(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return s.f(x) * (1 + 0.01 / calls[0])

    yield Trial("total_variation: a different result at every call", "no function", s.draw(seeded("warm")),
                named(s.f, warms_up), s.vjp, "", r"two calls|random|noise|no function|state")


def structure() -> Iterator[Trial]:
    """Backwards that return right numbers once, and change something or fail later."""
    for function in ("softplus", "polynomial", "pairwise_distances", "autocorrelation"):
        s = THIRD_PARTY[function]
        arrays = s.draw(seeded(function))

        def changes_dy(dy: Any, *inputs: np.ndarray, s: Any = s) -> Any:
            grads = s.vjp(dy, *inputs)
            dy *= 2
            return grads

        def changes_input(dy: Any, *inputs: np.ndarray, s: Any = s) -> Any:
            grads = s.vjp(dy, *inputs)
            inputs[0].reshape(-1)[0] += 1
            return grads

        def expects_contiguous(dy: Any, *inputs: np.ndarray, s: Any = s) -> Any:
            return s.vjp(dy.ravel(order="K").reshape(dy.shape), *inputs)

        for what, wrong, words in [
            ("dy changed in place", changes_dy, r"dy|upstream"), ("an input changed in place", changes_input, r"input"),
            ("dy read in memory order", expects_contiguous, r"contiguous|stride|memory|order|layout"),
        ]:
            if what.startswith("dy read") and np.ndim(s.f(*arrays)) < 2:
                continue
            yield Trial(f"{function}: {what}", "structure", arrays, s.f, wrong, "", words)

        def op(*inputs: np.ndarray, s: Any = s) -> Any:
            return s.f(*inputs), {"inputs": [x.copy() for x in inputs], "calls": 0}

        def accumulates(dy: Any, cache: Any, s: Any = s) -> Any:
            grads = s.vjp(dy, *cache["inputs"])
            cache["inputs"][0] += 1.0
            return grads

        def third_time(dy: Any, cache: Any, s: Any = s) -> Any:
            cache["calls"] += 1
            grads = s.vjp(dy, *cache["inputs"])
            return tuple(2 * g for g in grads) if cache["calls"] > 2 else grads

        yield Trial(f"{function}: cache changed by the backward", "structure", arrays, named(s.f, op), accumulates, "",
                    r"twice|cache|again", True)
        yield Trial(f"{function}: wrong at the third call", "structure", arrays, named(s.f, op), third_time, "",
                    r"twice|cache|again|third|another call", True)

    x = seeded("scale").standard_normal((3, 4))
    buffer = np.zeros_like(x)

    def scale(x: np.ndarray) -> np.ndarray:
        return x * 3.0

    def tripled(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dy *= 3.0
        return dy

    yield Trial("scale: triples dy and returns it", "structure", (x,), scale, tripled, "", r"dy")
    yield Trial("scale: into a buffer that the next call overwrites", "structure", (x,), scale,
                lambda dy, x: np.multiply(dy, 3.0, out=buffer if dy.shape == buffer.shape else None), "",
                r"buffer|memory|overwr|again|later|changes? when")
    yield Trial("scale: clips dy at 5", "structure", (x,), scale, lambda dy, x: 3.0 * np.clip(dy, -5, 5), "",
                r"linear|clip|large|dy")

    def centre(x: np.ndarray) -> np.ndarray:
        return x - x.mean(0)

    yield Trial("centre: squeezes a batch of one", "structure", (x,), centre,
                lambda dy, x: dy - dy.squeeze().mean(0), "", r"size|axis|batch|one|1")
