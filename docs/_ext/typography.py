"""A formula in a line of text keeps the comma behind it and the bracket before it, wherever the line is broken."""

from docutils import nodes

WORD_JOINER = "\N{WORD JOINER}"


def join(app, doctree: nodes.document) -> None:
    """Browsers break a line on either side of a drawn formula, unless a word joiner stands there."""
    for math in doctree.findall(nodes.math):
        siblings = math.parent
        place = siblings.index(math)
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        if isinstance(after, nodes.Text) and after[:1] in tuple(",.;:!?)]"):
            siblings.replace(after, nodes.Text(WORD_JOINER + after))
        before = siblings[place - 1] if place else None
        if isinstance(before, nodes.Text) and before[-1:] in tuple("(["):
            siblings.replace(before, nodes.Text(before + WORD_JOINER))


def setup(app):
    """Done once a page, when it has been read."""
    app.connect("doctree-read", join)
    return {"parallel_read_safe": True}
