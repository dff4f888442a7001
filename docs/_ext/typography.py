"""A formula in a line of text keeps the comma behind it and the bracket before it, wherever the line is broken."""

from docutils import nodes

BEFORE, AFTER = "([", ",.;:!?)]"


def join(app, doctree: nodes.document) -> None:
    """Browsers break a line on either side of a drawn formula, unless both stand in a span that is not broken."""
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
    """Done once a page, when it has been read."""
    app.connect("doctree-read", join)
    return {"parallel_read_safe": True}
