"""Diagrams stand in their pages themselves, not as pictures: so they follow the switch of light and dark."""

from pathlib import Path

from docutils import nodes

FOLDER = "_static/diagrams/"


def put_in(app, doctree: nodes.document, page: str) -> None:
    """The drawing in the place of the picture, where the page is HTML."""
    if app.builder.format == "html":
        for image in list(doctree.findall(nodes.image)):
            if image["uri"].startswith(FOLDER):
                svg = (Path(app.srcdir) / image["uri"]).read_text(encoding="utf-8")
                image.replace_self(nodes.raw("", svg, format="html"))


def setup(app):
    """Done once a page, before it is written."""
    app.connect("doctree-resolved", put_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
