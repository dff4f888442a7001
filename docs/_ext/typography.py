"""Where lines break: a formula stays with the comma after it, and a phone shows one displayed formula per line."""

import re

from docutils import nodes

BEFORE, AFTER = "([", ",.;:!?)]"
OPEN = re.compile(r"\\begin\b|\\left\b|(?<!\\)\{")
CLOSE = re.compile(r"\\end\b|\\right\b|(?<!\\)\}")
WIDE_SPACE = re.compile(r"(?:\\qquad\b\s*(?:\\quad\b)?\s*)+")


def join(app, doctree: nodes.document) -> None:
    """Put a formula and its punctuation into one unbroken span; otherwise browsers may break the line between them."""
    for math in list(doctree.findall(nodes.math)):
        siblings = math.parent
        place = siblings.index(math)
        before = siblings[place - 1] if place else None
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        opening = before[-1:] if isinstance(before, nodes.Text) and before[-1:] in tuple(BEFORE) else ""
        signs = after[: len(after) - len(after.lstrip(AFTER))] if isinstance(after, nodes.Text) else ""
        if not opening and not signs:
            continue
        whole = nodes.inline("", "", classes=["unbroken"])
        siblings.replace(math, whole)
        whole += [nodes.Text(opening), math, nodes.Text(signs)]
        if opening:
            siblings.replace(before, nodes.Text(before[:-1]))
        if signs:
            siblings.replace(after, nodes.Text(after[len(signs) :]))


def formulas_of(text: str) -> list[str]:
    r"""Cut a displayed formula at each \qquad that is in no group, environment or pair of \left and \right."""
    parts, start = [], 0
    for space in WIDE_SPACE.finditer(text):
        before = text[start : space.start()]
        if len(OPEN.findall(before)) == len(CLOSE.findall(before)) and before.strip():
            parts.append(before.strip())
            start = space.end()
    return [*parts, text[start:].strip()]


def separate(app, doctree: nodes.document) -> None:
    """Put the formulas of one display side by side; those that do not fit take the next line (see book.css)."""
    for math in list(doctree.findall(nodes.math_block)):
        parts = formulas_of(math.astext())
        if len(parts) == 1 or math.get("label"):
            continue
        whole = nodes.container("", classes=["formulas"])
        for part in parts:
            one = math.copy()
            one += nodes.Text(part)
            whole += one
        math.parent.replace(math, whole)


def setup(app):
    """Run once per page, after the page has been read."""
    app.connect("doctree-read", join)
    app.connect("doctree-read", separate)
    return {"parallel_read_safe": True}
