"""Keeps a formula in a text on one line with the comma after it and the bracket before it."""

from docutils import nodes

BEFORE, AFTER = "([", ",.;:!?)]"


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


def setup(app):
    """Run once per page, after the page has been read."""
    app.connect("doctree-read", join)
    return {"parallel_read_safe": True}
