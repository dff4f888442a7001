"""Puts the SVG text of each diagram into the page instead of a picture, so that it follows the light or dark theme."""

from pathlib import Path

from docutils import nodes

FOLDER = "_static/diagrams/"


def embed(app, doctree: nodes.document, page: str) -> None:
    """Replace each picture of a diagram by its SVG text if the page is HTML."""
    if app.builder.format == "html":
        for image in list(doctree.findall(nodes.image)):
            if image["uri"].startswith(FOLDER):
                svg = (Path(app.srcdir) / image["uri"]).read_text(encoding="utf-8")
                image.replace_self(nodes.raw("", svg, format="html"))


def setup(app):
    """Run once per page, before the page is written."""
    app.connect("doctree-resolved", embed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
