"""A pen for the site's diagrams: boxes, arrows, text and cells, written as SVG.

Every drawing is 420 units wide, about the width of a phone, so the text has nearly its original size on a phone. Each
colour has one meaning in all drawings: see `KINDS`. A page contains the SVG itself and chooses light or dark colours.
If the file is opened alone, or as a picture, the drawing follows the system's setting and has its own background.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from numpy_attention.app.plots import COLOURS, INK

WIDTH, SIZE, LINE = 420, 13, 17
BLUE, ORANGE, GREEN, PURPLE, _ = COLOURS
LIGHT = {
    "ground": "#ffffff", "ink": INK, "soft": "#595959", "faint": "#f1f1f1",
    "blue": BLUE, "orange": ORANGE, "green": GREEN, "purple": PURPLE,
    "pale-blue": "#e4eff8", "pale-orange": "#fcebdf", "pale-green": "#e1f2e8", "pale-purple": "#f2e8f6",
}
DARK = {
    "ground": "#131416", "ink": "#e4e4e4", "soft": "#a8adb3", "faint": "#26292c",
    "blue": "#78b4e6", "orange": "#f2965c", "green": "#62c493", "purple": "#c99be2",
    "pale-blue": "#15293c", "pale-orange": "#3d2413", "pale-green": "#123020", "pale-purple": "#301d3a",
}
KINDS = {  # the kind of a box: its fill and its stroke
    "data": ("ground", "ink"),  # an array
    "step": ("pale-blue", "blue"),  # a function
    "weights": ("pale-purple", "purple"),  # a parameter
    "gradient": ("pale-orange", "orange"),  # a gradient, or the highlighted box
    "kept": ("pale-green", "green"),  # stored for later
    "quiet": ("faint", "soft"),
    "frame": ("none", "soft"),
}
SANS = "-apple-system,BlinkMacSystemFont,'Segoe UI',Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono','DejaVu Sans Mono',monospace"

# Thousandths of the size, in DejaVu Sans, the widest of the usual fonts: text that fits in DejaVu Sans fits in all.
_WIDTHS = {
    227: "′", 278: "ijl'", 295: "IJ", 318: " ,.·", 337: "/:;|\\", 352: "f", 390: "()[]-", 401: "!₀₁₂₃₄", 411: "r",
    460: '"', 500: "_*–", 521: "st", 550: "cz", 592: "kxvy", 615: "aeoTYP", 636: "0123456789bdghnpqu?√βγμσ",
    698: "ABCEFKLRSVXZ", 787: "DGHNOQU", 780: "&", 838: "+<=>−×→←↓↑~⊙≥≤w#∞", 863: "M", 974: "m", 1000: "@WW…—",
}
_WIDTH_OF = {character: width / 1000 for width, characters in _WIDTHS.items() for character in characters}


class Box(NamedTuple):
    """A rectangle on the paper, with the points where arrows start and end."""

    x: float
    y: float
    w: float
    h: float
    kind: str = "data"

    @property
    def right(self) -> float:
        return self.x + self.w

    @property
    def bottom(self) -> float:
        return self.y + self.h

    @property
    def cx(self) -> float:
        return self.x + self.w / 2

    @property
    def cy(self) -> float:
        return self.y + self.h / 2


def width_of(text: str) -> float:
    """The width of a line, in units."""
    return SIZE * sum(_WIDTH_OF[character] for character in text)


def wrapped(text: str, width: float) -> str:
    """The text, broken into lines of at most this width."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines[-1:] = [longer] if width_of(longer) <= width or not lines[-1] else [lines[-1], word]
    return "\n".join(lines)


class Drawing:
    """A sheet of paper. Coordinates are units from its upper left corner."""

    def __init__(self, name: str, title: str, description: str, height: float) -> None:
        self.name, self.title, self.description, self.height = name, title, description, height
        self._parts: list[str] = []
        self._film: list[str] = []  # the style of the frames

    def box(self, cx: float, y: float, w: float, text: str = "", kind: str = "data", h: float = 0) -> Box:
        """A box with centred lines of text; a line in `backticks` is code, a line in *stars* is bold."""
        lines = text.split("\n") if text else []
        h = h or 13 + LINE * len(lines)
        box = Box(cx - w / 2, y, w, h, kind)
        radius = 4 if kind == "frame" else 5
        self._rect(box, radius)
        for n, line in enumerate(lines):
            if line:
                self._line(cx, box.cy + (n - (len(lines) - 1) / 2) * LINE + 4.5, line, "middle", "ink")
        return box

    def write(self, x: float, y: float, text: str, at: str = "start", role: str = "ink") -> None:
        """Text on the paper; y is the baseline of the first line."""
        for n, line in enumerate(text.split("\n")):
            self._line(x, y + n * LINE, line, at, role)

    def arrow(self, *points: tuple[float, float], role: str = "ink", head: bool = True, dashed: bool = False) -> None:
        """A line through the points, with round corners and an arrow head at the end."""
        end, before = points[-1], points[-2]
        length = math.dist(end, before)
        along = ((end[0] - before[0]) / length, (end[1] - before[1]) / length)
        stop = (end[0] - 6 * along[0], end[1] - 6 * along[1]) if head else end
        path = f"M{_n(points[0][0])} {_n(points[0][1])}"
        for a, corner, b in zip(points, points[1:], points[2:]):
            r = min(7.0, math.dist(a, corner) / 2, math.dist(corner, b) / 2)
            start, finish = _towards(corner, a, r), _towards(corner, b, r)
            path += f"L{_p(start)}Q{_p(corner)} {_p(finish)}"
        path += f"L{_p(stop)}"
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<path class="line" d="{path}" stroke="var(--{role})"{dashes}/>')
        if head:
            left = (end[0] - 9 * along[0] - 4.5 * along[1], end[1] - 9 * along[1] + 4.5 * along[0])
            right = (end[0] - 9 * along[0] + 4.5 * along[1], end[1] - 9 * along[1] - 4.5 * along[0])
            self._parts.append(f'<path d="M{_p(end)}L{_p(left)}L{_p(right)}Z" fill="var(--{role})"/>')

    def cells(
        self, x: float, y: float, rows: int, columns: int, size: float, kind_of: Callable[[int, int], str],
        text_of: Callable[[int, int], str] = lambda i, j: "", wide: float = 0,
    ) -> None:
        """A matrix: the kind of a cell is one of `KINDS`, or "hidden"; hidden cells are striped."""
        wide = wide or size
        for i in range(rows):
            for j in range(columns):
                kind = kind_of(i, j)
                look = "quiet" if kind == "hidden" else kind
                cell = Box(x + j * wide + 1, y + i * size + 1, wide - 2, size - 2, look)
                self._rect(cell, 2)
                if kind == "hidden":
                    self._stripes(cell)
                if text_of(i, j):
                    self._line(cell.cx, cell.cy + 4.5, text_of(i, j), "middle", "ink")

    def _stripes(self, cell: Box) -> None:
        """Parallel thin lines from the lower left to the upper right, cut by the edges of the cell."""
        lines = []
        for along in np.arange(6.0, cell.w + cell.h - 2, 6.0):  # a line through the points with x + y = along
            left, right = max(0.0, along - cell.h), min(cell.w, along)
            lines.append(f"M{_n(cell.x + left)} {_n(cell.y + along - left)}"
                         f"L{_n(cell.x + right)} {_n(cell.y + along - right)}")  # fmt: skip
        self._parts.append(f'<path class="thin" d="{"".join(lines)}" stroke="var(--soft)"/>')

    def numbers(
        self, x: float, y: float, values: np.ndarray, most: float, wrong: np.ndarray | None = None,
        chosen: tuple[int, int] | None = None,
    ) -> None:
        """A matrix of numbers. Zero is white, positive is blue, negative is orange; NaN is a hidden cell, striped.

        `most` is the size with the strongest colour. Numbers that are True in `wrong` have a wavy line.
        """
        wide, high = 46, 26
        for (i, j), value in np.ndenumerate(values):
            kind = "hidden" if math.isnan(value) else "number"
            cell = Box(x + j * wide + 1, y + i * high + 1, wide - 2, high - 2, kind)
            if math.isnan(value):
                self._rect(cell, 3, "fill:var(--faint)")
                self._stripes(cell)
                continue
            fill, strength = "blue" if value > 0 else "orange", min(1.0, abs(value) / most)
            look = f"fill:var(--{fill});fill-opacity:{0.5 * strength:.2f}"
            self._rect(cell, 3, look + ";stroke:var(--ink)" if (i, j) == chosen else look)
            text = f"{value:.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"
            self._line(cell.cx, cell.cy + 4.5, text, "middle", "ink")
            if wrong is not None and wrong[i, j]:
                wave = f"M{_n(cell.x + 7)} {_n(cell.bottom - 3)}q2 -4 4 0" + 7 * "t4 0"
                self._parts.append(f'<path class="line wavy" d="{wave}" stroke="var(--orange)"/>')

    @contextmanager
    def frame(self, start: float, end: float, seconds: float, still: bool = False) -> Iterator[None]:
        """Everything drawn in this block is shown from `start` to `end` of a film that repeats after some seconds.

        Without a moving screen (on paper, or if the reader's system asks for less motion) only the still is shown.
        """
        before = len(self._parts)
        yield
        name = f"f{round(1000 * start)}"
        shown = [(0.0, start == 0), (start, True), (end, False)]
        steps = "".join(f"{100 * t / seconds:.2f}%{{visibility:{'visible' if on else 'hidden'}}}" for t, on in shown
                        if t < seconds)
        self._film += [f"@keyframes {name}{{{steps}}}", f".{name}{{animation:{name} {_n(seconds)}s step-end infinite}}"]
        look = "scene still" if still else "scene"
        self._parts[before:] = [f'<g class="{look} {name}">', *self._parts[before:], "</g>"]

    def svg(self) -> str:
        """The text of the SVG file."""
        name, size = self.name, f"{WIDTH} {_n(self.height)}"
        measures = f'width="{WIDTH}" height="{_n(self.height)}"'
        spoken = f'role="img" aria-labelledby="{name}-title {name}-description"'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {size}" {measures} {spoken}>',
            f'<title id="{name}-title">{escape(self.title)}</title>',
            f'<desc id="{name}-description">{escape(self.description)}</desc>',
            f"<style>{_style()}{self._moving()}</style>",
            f'<rect width="{WIDTH}" height="{_n(self.height)}" rx="6" fill="var(--ground)"/>',
        ]
        return "\n".join([*head, *self._parts, "</svg>"]) + "\n"

    def _moving(self) -> str:
        """The style of a drawing with frames."""
        if not self._film:
            return ""
        return "\n".join(["", ".scene{visibility:hidden}", ".still{visibility:visible}",
                          "@media screen and (prefers-reduced-motion:no-preference){", *self._film, "}"])

    def _rect(self, box: Box, radius: float, look: str = "") -> None:
        place = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}"'
        look = f' style="{look}"' if look else ""
        self._parts.append(f'<rect class="{box.kind}" {place} rx="{_n(radius)}"{look}/>')

    def _line(self, x: float, y: float, text: str, at: str, role: str) -> None:
        mono, bold = text.startswith("`"), text.startswith("*")
        text = text.strip("`") if mono else text.strip("*")
        look = ' class="code"' if mono else ' class="bold"' if bold else ""
        look += f' text-anchor="{at}"' if at != "start" else ""
        look += f' style="fill:var(--{role})"' if role != "ink" else ""
        self._parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{look}>{escape(text)}</text>')


def _style() -> str:
    light, dark = (";".join(f"--{name}:{value}" for name, value in look.items()) for look in (LIGHT, DARK))
    kinds = [
        f".diagram .{kind}{{fill:{'none' if fill == 'none' else f'var(--{fill})'};stroke:var(--{stroke})}}"
        for kind, (fill, stroke) in KINDS.items()
    ]
    return "\n".join([
        f".diagram{{{light}}}",
        f"@media screen and (prefers-color-scheme:dark){{.diagram{{{dark}}}}}",
        f"[data-theme=light] .diagram{{{light}}}",
        f"@media screen{{[data-theme=dark] .diagram{{{dark}}}}}",
        f".diagram text{{font:{SIZE}px {SANS};fill:var(--ink);white-space:pre}}",
        f".diagram .code{{font-family:{MONO}}}",
        ".diagram .bold{font-weight:600}",
        ".diagram :is(rect,circle){stroke-width:1.4}",
        ".diagram .line{fill:none;stroke-width:1.6}",
        ".diagram .thin{fill:none;stroke-width:1}",
        *kinds,
        ".diagram .frame{stroke-dasharray:5 4}",
    ])


def _towards(a: tuple[float, float], b: tuple[float, float], r: float) -> tuple[float, float]:
    share = r / math.dist(a, b)
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _p(point: tuple[float, float]) -> str:
    return f"{_n(point[0])} {_n(point[1])}"
