"""The moving picture of the README: one attention head whose numbers change, with and without a mistake."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

import numpy_attention as na
from docs.diagrams.pen import Drawing
from numpy_attention.ops.c03_softmax import SoftmaxCache
from numpy_attention.tutor import MISTAKES

Q = np.array([[0.8, -0.5], [-0.4, 1.1], [0.6, 0.2]])
K = np.array([[0.9, 0.3], [-1.2, 0.7], [0.4, -0.8]])
V = np.array([[1.0, -0.6], [-0.7, 0.4], [0.3, 1.2]])
DY = np.array([[0.5, -0.2], [0.9, 0.6], [-0.8, 1.0]])
MASK = na.causal_mask(3)
PLACE = 2, 0  # the number of q that moves
FIRST, LAST = 0.6, 2.6


class Scene(NamedTuple):
    """A value of the moving number, with or without the mistake, for some seconds."""

    value: float
    mistake: bool
    seconds: float


def scenes() -> list[Scene]:
    """The number moves to the right with the correct backward, and back to the left with the mistake."""
    there = np.linspace(FIRST, LAST, 5)
    right = [Scene(x, False, 2.0 if x == FIRST else 0.6) for x in there]
    wrong = [Scene(x, True, 0.6) for x in there[::-1]]
    return [*right[:-1], right[-1]._replace(seconds=1.0), wrong[0]._replace(seconds=2.5), *wrong[1:-1],
            wrong[-1]._replace(seconds=3.0)]  # fmt: skip


def gradients(value: float, mistake: bool) -> dict[str, np.ndarray]:
    """All numbers of the head for one value of the moving number."""
    q = Q.copy()
    q[PLACE] = value
    _, cache = na.scaled_dot_product_attention(q, K, V, MASK)
    dweights = DY @ V.T
    backward = MISTAKES["diagonal_only"].made("softmax_backward") if mistake else na.softmax_backward
    dscores = backward(dweights, SoftmaxCache(cache.weights, -1))
    scores = cache.scale * q @ K.T
    return {"q": q, "scores": scores, "weights": cache.weights, "dweights": dweights, "dscores": dscores,
            "dq": cache.scale * dscores @ K}  # fmt: skip


def touchable_head() -> Drawing:
    """Each gradient below its array; the number q[2, 0] moves, and a mistake is switched on."""
    d = Drawing(
        "touchable-head", "One attention head: a number moves, and a mistake is switched on",
        "q, scores and weights of three words, and below each array its gradient. A number of q moves, and its row "
        "follows. Then the mistake diagonal_only is switched on, and wavy lines mark the wrong numbers.",
        322,
    )
    xs = {"q": 10, "scores": 118, "weights": 272}
    top, bottom = 36, 152
    for name, x in xs.items():
        d.write(x, top - 9, f"`{name}`")
        d.write(x, bottom - 9, f"`d{name}`")
    for a, b in ((103, 117), (257, 271)):
        d.arrow((a, top + 39), (b, top + 39))
        d.arrow((b, bottom + 39), (a, bottom + 39), role="orange")
    d.write(11, 262, "change q[2, 0]")
    d.numbers(xs["weights"], bottom, gradients(FIRST, False)["dweights"], 1.0)  # these do not depend on q
    times = list(accumulate((scene.seconds for scene in scenes()), initial=0.0))
    for n, (scene, (start, end)) in enumerate(zip(scenes(), pairwise(times))):
        with d.frame(start, end, times[-1], still=n == len(times) - 2):
            picture(d, scene, xs, top, bottom)
    return d


def picture(d: Drawing, scene: Scene, xs: dict[str, int], top: int, bottom: int) -> None:
    """The numbers of one scene, the slider, and the result of the check."""
    found, right = gradients(scene.value, scene.mistake), gradients(scene.value, False)
    hidden = {name: np.where(MASK, found[name], np.nan) for name in ("scores", "weights")}
    for name, x in xs.items():
        most, chosen = 1.0 if name == "weights" else 2.0, PLACE if name == "q" else None
        d.numbers(x, top, hidden.get(name, found[name]), most, chosen=chosen)
        if name != "weights":
            wrong = abs(found[f"d{name}"] - right[f"d{name}"]) > 1e-12
            d.numbers(x, bottom, found[f"d{name}"], 1.0, wrong)
    at = 150 + (scene.value - FIRST) / (LAST - FIRST) * 220
    d.arrow((138, 258), (at - 8, 258), role="soft", head=False)
    d.arrow((at + 8, 258), (384, 258), role="soft", head=False)
    d.box(at, 250, 12, kind="step", h=16)
    sums = ", ".join(f"{one + 0.0:.2f}".replace("-", "−") for one in found["dscores"].sum(axis=-1).round(2))
    name, look = ("diagonal_only", "orange") if scene.mistake else ("none", "ink")
    d.write(11, 290, f"mistake: {name}", role=look)
    must = "; must be zero" if scene.mistake else ""
    d.write(11, 308, f"row sums of dscores: {sums}{must}", role="orange" if scene.mistake else "soft")
