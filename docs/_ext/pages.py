"""Writes pages at every build: the book's chapters, the reference, and the tutorials with their notebooks.

The pages are made from the source files. A new chapter, name or tutorial needs no change in this file.
"""

import ast
import functools
import importlib
import inspect
import re
import shutil
from pathlib import Path

from asserts import fold_asserts
from docstrings import to_rst
from notes import code_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "numpy_attention"
DOCS = ROOT / "docs"
PARTS = {
    "ops": "Part I. Functions and their gradients",
    "layers": "Part II. Layers: functions with parameters",
    "models": "Part III. Models",
    "training": "Part IV. Training",
    "runs": "Part IV, continued. Long runs",
    "tasks": "Tasks for training",
    "pretrained": "Part V. Real weights",
    "inside": "Part VI. Inside a trained model",
    "gradcheck": "Checking: the checker",
    "catalogue": "Checking: every op, layer and model, and known mistakes",
    "grade": "The tutor",
    "": "Files outside the packages",
}
NAMES = ("ops", "layers", "models", "training", "inside", "gradcheck")  # the parts with public names
REFERENCE = {
    **{part: PARTS[part] for part in NAMES},
    "plots": "Pictures", "backend": "Backends: NumPy or CuPy", "errors": "Errors",
}
HEADING = re.compile(r"Chapter (\d+)(?:, (continued|appendix))?\. .+")

LINK = re.compile(r"\[(?P<text>[^]\n]+(\n[^]\n]+)*)\]\((?P<target>\.?[\w./-]+\.\w+)(?P<anchor>(#[\w-]+)?)\)")


@functools.cache
def chapters(part: str) -> list[tuple[str, str, Path, str]]:
    """(page name, title, source file, docstring) of a part's chapters, in reading order."""
    found = []
    for path in sorted((PACKAGE / part).rglob("*.py") if part else PACKAGE.glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        title = docstring.split("\n", 1)[0].rstrip(".")
        heading = HEADING.match(title)
        if path.name.startswith("__") or not docstring:
            continue
        rank = {None: 0, "continued": 1, "appendix": 2}
        order = (int(heading[1]), rank[heading[2]], path.name) if heading else (1000, 0, str(path))
        found.append((order, title, path, docstring))
    pages = []
    for order, title, path, docstring in sorted(found, key=lambda chapter: chapter[0]):
        stem = "-".join(path.relative_to(PACKAGE / part).with_suffix("").parts)
        number = f"{order[0]:02d}-" if order[0] < 1000 else ""
        pages.append((f"{part or 'ground'}-{number}{stem}", title, path, docstring))
    return pages


def chapter_of(obj: object) -> str | None:
    """The page of the chapter that contains the source of a function or class."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(obj)) or "")
    except TypeError:
        return None
    for part in PARTS:
        for page, _, path, _ in chapters(part) if (PACKAGE / part).is_dir() else []:
            if path == file:
                return page
    return None


def public_names() -> list[str]:
    """All public names of the package's parts."""
    return [name for part in NAMES for name in names_of(part)]


def names_of(part: str) -> list[str]:
    """The public names of a part: its `__all__`, or else the functions and classes that it defines."""
    if not (PACKAGE / part).is_dir() and not (PACKAGE / part).with_suffix(".py").exists():
        return []
    module = importlib.import_module(f"numpy_attention.{part}")
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = [n for n, o in vars(module).items() if getattr(o, "__module__", "") == module.__name__ and callable(o)]
    return [name for name in own if not name.startswith("_")]


def write(path: Path, lines: list[str], made: set[Path]) -> None:
    """Write a page if its text has changed; Sphinx does not build an unchanged page again."""
    text = "\n".join(lines).rstrip() + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text)
    made.add(path)


def heading(title: str, underline: str = "=") -> list[str]:
    """A title in reStructuredText."""
    return [title.replace("`", ""), underline * len(title), ""]


def write_book(made: set[Path]) -> None:
    """Write one page per chapter: the docstring of the file as prose, then its code with the notes."""
    names = set(public_names())
    intro = (
        "Every chapter is a file of the package. Its page shows the docstring of the file as prose, then the code. "
        "Cover a backward with your hand, derive it, and compare line by line. In Parts I and II, and for the "
        "optimizers, notes next to the code give the formula of each line, in the notation of the :doc:`derivations "
        "</derivations/index>`."
    )
    index = [*heading("The book"), intro, ""]
    for part, part_title in PARTS.items():
        pages = chapters(part) if (PACKAGE / part).is_dir() else []
        if not pages:
            continue
        listed = [f"   {page}" for page, *_ in pages]
        index += [".. toctree::", f"   :caption: {part_title}", "   :maxdepth: 1", "", *listed, ""]
        for page, title, path, docstring in pages:
            first_line = ast.parse(path.read_text("utf-8")).body[0].end_lineno + 2
            body = [
                ":hide-toc:", "",  # the contents have one heading only; the code needs the width of 120 columns
                *heading(title), *to_rst(docstring.partition("\n")[2], names), *heading("The code", "-"),
                *code_of(path, first_line),
            ]
            write(DOCS / "book" / f"{page}.rst", body, made)
    write(DOCS / "book" / "index.rst", index, made)


def write_reference(made: set[Path]) -> None:
    """Write one page per part, with every public name."""
    index = [*heading("Reference"), ("Every public name, in reading order. ``import numpy_attention as na`` provides "
             "the names of Parts I to IV, and Part VI as ``na.inside``."), "", ".. toctree::", "   :maxdepth: 2", ""]
    for part, title in REFERENCE.items():
        names = names_of(part)
        if not names:
            continue
        module = importlib.import_module(f"numpy_attention.{part}")
        short = part in ("ops", "layers", "models", "training")
        page = [*heading(title), *to_rst((module.__doc__ or "").partition("\n")[2]),
                f".. py:currentmodule:: numpy_attention{'' if short else '.' + part}", ""]
        for name in names:
            obj = getattr(module, name)
            kind = "class" if inspect.isclass(obj) else "function" if callable(obj) else "data"
            page.append(f".. auto{kind}:: {name}")
            if kind == "class":
                page += ["   :members:", *["   :show-inheritance:"] * (obj.__bases__ != (object,))]
            page.append("")
        write(DOCS / "api" / f"{part}.rst", page, made)
        index.append(f"   {part}")
    write(DOCS / "api" / "index.rst", index, made)


def write_tutorials(made: set[Path]) -> None:
    """Write the tutorials with folded asserts, each with a link to its notebook, and the notebooks without outputs."""
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook

    intro = (
        "From one dot product to a real language model, with every gradient computed and checked. Each tutorial is a "
        "notebook. The first tutorial explains the reasons in ten minutes; the gradients begin with tutorial 1."
    )
    index = [*heading("Tutorials"), intro, "", ".. toctree::", "   :maxdepth: 1", ""]
    for path in sorted((ROOT / "tutorials").glob("[0-9]*.md")):
        text = path.read_text("utf-8")
        notebook = read_myst_markdown_notebook(text, add_source_map=False)
        for i, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{i}"
        write(DOCS / "notebooks" / f"{path.stem}.ipynb", [nbformat.writes(notebook)], made)
        link = f"{{download}}`Download as a notebook </notebooks/{path.stem}.ipynb>`"
        title = re.search(r"^# .+$", text, re.MULTILINE)
        text = f"{text[: title.end()]}\n\n{link}{text[title.end() :]}" if title else text
        write(DOCS / "tutorials" / path.name, [relink(fold_asserts(text), path.parent)], made)
        index.append(f"   {path.stem}")
    write(DOCS / "tutorials" / "index.rst", index, made)


def relink(text: str, folder: Path) -> str:
    """Replace links to other files of the repository by links to the pages made from these files."""
    parts = [part for part in PARTS if (PACKAGE / part).is_dir()]
    pages = {path: f"/book/{page}" for part in parts for page, _, path, _ in chapters(part)}

    def turn(link: re.Match[str]) -> str:
        target = (folder / link["target"]).resolve()
        if target in pages:
            return f"[{link['text']}]({pages[target]}.rst{link['anchor']})"
        if target.is_relative_to(DOCS):
            return f"[{link['text']}](/{target.relative_to(DOCS)}{link['anchor']})"
        if target.is_file() and target.suffix != ".md":
            return f"{{download}}`{link['text']} </../{target.relative_to(ROOT)}>`"
        return link[0]

    return LINK.sub(turn, text)


def relink_page(app, page: str, source: list[str]) -> None:
    """Apply `relink` to a hand-written page when Sphinx reads it."""
    path = Path(app.env.doc2path(page))
    if path.suffix == ".md" and path.parent != DOCS / "tutorials":
        source[0] = relink(source[0], path.parent)


def write_pages(app) -> None:
    """Write all pages, and delete each page whose source no longer exists."""
    chapters.cache_clear()
    made: set[Path] = set()
    write_book(made)
    write_reference(made)
    write_tutorials(made)
    for folder in ("api", "book", "notebooks", "tutorials"):
        for path in (DOCS / folder).glob("*.*"):
            if path not in made:
                path.unlink()


def copy_mathjax(app, error) -> None:
    """Copy MathJax and its licence to the other static files."""
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir) / "_static" / "mathjax"
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in app.config.MATHJAX.items():
            shutil.copyfile(source, folder / name)


def setup(app):
    """Write the pages before Sphinx collects the list of pages."""
    app.add_config_value("MATHJAX", {}, "")
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink_page)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True}
