"""Diagrams of the check of a gradient, of the package layout, and the map of the tutorials."""

import re
from pathlib import Path

import numpy as np

import numpy_attention as na
from docs._ext import contents
from docs.diagrams.pen import LINE, Box, Drawing, wrapped

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"
BOOK = ("ops", "training", "layers", "models", "runs", "pretrained", "tasks")
CHECKS = ("gradcheck", "tutor")


def two_roads() -> Drawing:
    """A slope by numerical differences and by the backward."""
    d = Drawing(
        "two-roads", "Two ways to one number",
        "From one random point, two ways lead to the slope of the loss along v. Left: two forwards and a difference. "
        "Right: one forward, the backward, and a sum. Below: the two results; all nine digits are equal.", 448,
    )
    rng = np.random.default_rng(10)
    x, dy, v = rng.standard_normal((3, 6))
    h = 1e-5
    measured = float(np.sum(dy * (na.softmax(x + h * v)[0] - na.softmax(x - h * v)[0]))) / (2 * h)
    y, cache = na.softmax(x)
    analytic, wrong = float(np.sum(na.softmax_backward(dy, cache) * v)), float(np.sum(y * (1 - y) * dy * v))
    start = d.box(210, 14, 260, "x, dy and a direction v, all random")
    left, right, w = 108, 312, 192
    measure = d.box(left, 84, w, "*forward, twice*\nL(h) = sum(dy * f(x + h v))\nL(-h) in the same way", "step")
    once = d.box(right, 84, w, "*forward, once*\ny and the cache\nof y = f(x)", "step")
    for box in (measure, once):
        d.arrow((box.cx, start.bottom), (box.cx, box.y))
    back = d.box(right, 176, w, "*backward, once*\ndx from dy and the cache", "gradient")
    slope = d.box(left, 251, w, "*difference*\n(L(h) - L(-h)) / 2h", "step")
    along = d.box(right, 251, w, "*along v*\nsum(dx * v)", "gradient")
    d.arrow((left, measure.bottom), (left, slope.y))
    d.arrow((right, once.bottom), (right, back.y))
    d.arrow((right, back.bottom), (right, along.y))
    a = d.box(left, 326, w, f"`{measured:.9f}`")
    b = d.box(right, 326, w, f"`{analytic:.9f}`")
    d.arrow((left, slope.bottom), (left, a.y))
    d.arrow((right, along.bottom), (right, b.y))
    d.write(210, 384, "softmax with the correct backward: nine equal digits", "middle", "green")
    d.box(right, 400, w, f"`{wrong:.9f}`")
    d.write(left + 96, 420, "only the diagonal (mistake):", "end", "orange")
    return d


def package_layout() -> Drawing:
    """The layers of imports, read from the map on the page for contributors."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"## Package layout.*?```text\n(.*?)```", page, re.DOTALL)
    assert found, "no map"
    levels = [(line[:37].split(), [part.strip() for part in line[37:].split(";")]) for line in found[1].splitlines()]
    d = Drawing(
        "house", "The package layout",
        "The packages in eleven layers of imports: at the top the commands, then the tutor, training, models, "
        "layers and ops; errors, backend and the checker at the bottom.", 100,
    )
    left, right, y = 20, 400, 36.0
    for packages, purposes in levels:
        assert len(packages) == len(purposes), packages
        wide = (right - left) / len(packages)
        texts = [wrapped(purpose, wide - 14) for purpose in purposes]
        deepest = max(text.count("\n") for text in texts)
        height = 51 + 17 * deepest
        for n, (package, text) in enumerate(zip(packages, texts)):
            kind = "step" if package in BOOK else "kept" if package in CHECKS else "quiet"
            text += "\n" * (deepest - text.count("\n"))  # aligns all names of a layer
            d.box(left + (n + 0.5) * wide, y, wide - 4, f"`{package}`\n{text}", kind, height - 4)
        y += height
    d.write(210, 24, "a file imports from its own layer and from the layers below", "middle", "soft")
    for x, kind, what in ((22, "step", "the book"), (150, "kept", "checks and tutor"), (318, "quiet", "tools")):
        d.cells(x, y + 10, 1, 1, 20, lambda i, j, kind=kind: kind)
        d.write(x + 28, y + 25, what, role="soft")
    d.height = y + 42
    return d


def book_map() -> Drawing:
    """The parts of the tutorials, and which part needs which; the titles and times are read from the tutorials."""
    d = Drawing(
        "map", "A map of the tutorials",
        "The parts of the tutorials as boxes, from top to bottom: the start; attention and its gradient; the "
        "transformer. Below the transformer are two boxes: checking gradients, and training and writing. The next row "
        "has three boxes: inside a model, real models, and memory and speed. The last two boxes are attention since "
        "2023, and rewards and experts. "
        "Each arrow leads to a part that needs the part at its beginning.", 100,
    )
    every, boxes, y = contents.tutorials(), dict[int, Box](), 12.0
    rows = (
        ((0, 1, 3),), ((1, 1, 3),), ((5, 1, 3),), ((10, 1, 1), (11, 2, 2)), ((19, 1, 1), (17, 2, 1), (15, 3, 1)),
        ((22, 1, 3),), ((24, 1, 3),),
    )  # fmt: skip
    for row in rows:  # (first tutorial of the part, first of three columns, number of columns)
        texts = {}
        for part, _, columns in row:
            room = 136 * columns - 34
            inside = [one for one in every if one.part == part]
            lines = [("", f"*{line}*") for line in wrapped(contents.PARTS[part], room / 1.15).split("\n")]
            for one in inside:
                number, _, title = one.title.partition(" ")
                first, *others = wrapped(title, room - 22).split("\n")
                lines += [(number, first), *((" ", line) for line in others)]
            texts[part] = [*lines, ("", f"{sum(one.minutes for one in inside)} minutes")]
        height = 14 + LINE * max(map(len, texts.values()))
        for part, column, columns in row:
            left, w = 14 + 136 * (column - 1), 136 * columns - 16
            boxes[part] = d.box(left + w / 2, y, w, kind="step", h=height)
            for n, (number, line) in enumerate(texts[part]):
                role = "soft" if n == len(texts[part]) - 1 else "ink"
                if number.strip():
                    d.write(left + 27, y + 19 + LINE * n, number, "end")
                d.write(left + (31 if number else 9), y + 19 + LINE * n, line, role=role)
        y += height + 26
    for part, needing in sorted(contents.arrows()):
        a, b = boxes[part], boxes[needing]
        if a.y == b.y:
            d.arrow((a.x, a.cy), (b.right, b.cy))
        else:
            x = b.cx if a.x < b.cx < a.right else a.cx
            d.arrow((x, a.bottom), (x, b.y))
    d.height = y - 14
    return d
