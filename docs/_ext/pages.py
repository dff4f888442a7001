"""Writes pages at every build: the chapters, what is checked of them, the reference, the tutorials and notebooks.

The pages are made from the source files. A new chapter, name or tutorial needs no change in this file.
"""

import ast
import functools
import importlib
import inspect
import re
import shutil
from pathlib import Path

import contents
from docstrings import inline, to_rst
from notebooks import BUNDLE, notebook_of, write_bundle
from notes import code_of
from stored import command_for, misfit, show_stored, stored_names

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "numpy_attention"
DOCS = ROOT / "docs"
CHECKED = PACKAGE / "tutor" / "pages"  # in Markdown: what is checked, known mistakes, exercises
PARTS = {
    "ops": "Part I. Functions and their gradients",
    "layers": "Part II. Layers: functions with parameters",
    "models": "Part III. Models",
    "training": "Part IV. Training",
    "pretrained": "Part V. Real weights",
    "inside": "Part VI. Inside a trained model",
    "recent": "Part VII. Attention since 2023",
    "beyond": "Part VIII. Beyond the next token",
    "gradcheck": "Checking: the checker",
    "tutor": "The tutor: what is checked, known mistakes, exercises",
    "": "Files outside the packages",
}
# the parts with public names
NAMES = ("ops", "layers", "models", "training", "inside", "recent", "beyond", "gradcheck")
REFERENCE = {
    **{part: PARTS[part] for part in NAMES},
    "tutor.reference": "Cases for other languages", "app.plots": "Pictures", "backend": "Backends: NumPy or CuPy",
    "errors": "Errors",
}

TUTORIALS = ROOT / "tutorials"
INDEXES = {TUTORIALS: "/tutorials/index.md", PACKAGE: "/book/index.rst", PACKAGE / "__init__.py": "/api/index.rst"}

LINK = re.compile(r"\[(?P<text>[^]\n]+(\n[^]\n]+)*)\]\((?P<target>\.?[\w./-]+\.\w+|\.\./\w+)(?P<anchor>(#[\w-]+)?)\)")


@functools.cache
def chapters(part: str) -> list[tuple[str, str, Path, str]]:
    """(page name, title, source file, docstring) of a part's chapters, in the order of their files."""
    pages = []
    for path in sorted((PACKAGE / part).rglob("*.py") if part else PACKAGE.glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if docstring and not path.name.startswith("__"):
            stem = "-".join(path.relative_to(PACKAGE / part).with_suffix("").parts)
            stem = re.sub(r"^c(\d+[a-z]?)_", r"\1-", stem)  # c06_attention: ops-06-attention
            pages.append((f"{part or 'ground'}-{stem}", docstring.split("\n", 1)[0].rstrip("."), path, docstring))
    return pages


@functools.cache
def chapter_pages() -> dict[Path, tuple[str, str]]:
    """(page name, title) of the chapter in each source file."""
    return {path: (page, title) for part in PARTS for page, title, path, _ in chapters(part)}


def chapter_of(obj: object) -> str | None:
    """The page of the chapter that contains the source of a function or class."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(obj)) or "")
    except TypeError:
        return None
    found = chapter_pages().get(file)
    return found and found[0]


def public_names() -> list[str]:
    """All public names of the package's parts."""
    return [name for part in NAMES for name in names_of(part)]


def names_of(part: str) -> list[str]:
    """The public names of a part: its `__all__`, or else the functions and classes that it defines."""
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
        path.write_text(text, encoding="utf-8")
    made.add(path)


def heading(title: str, underline: str = "=") -> list[str]:
    """A title in reStructuredText."""
    return [title.replace("`", ""), underline * len(title), ""]


def write_book(made: set[Path]) -> None:
    """Write one page per chapter: the docstring of the file as prose, then its code with the notes."""
    names = set(public_names())
    tutorials = contents.twins()
    intro = (
        "Every chapter is a file of the package. Its page shows the docstring of the file as prose, then the code. "
        "The chapters and the :doc:`tutorials </tutorials/index>` have different numbers; a chapter and its tutorial "
        "link to each other. "
        "Cover a backward with your hand, derive it, and compare line by line. In Parts I and II, and for the "
        "optimizers, notes next to the code give the formula of each line, in the notation of the :doc:`derivations "
        "</derivations/index>`."
    )
    index = [*heading("Source, chapter by chapter"), intro, ""]
    for part, part_title in PARTS.items():
        pages = chapters(part)
        if not pages:
            continue
        listed = [f"   {page}" for page, *_ in pages]
        index += [".. toctree::", f"   :caption: {part_title}", "   :maxdepth: 1", "", *listed, ""]
        for page, title, path, docstring in pages:
            first_line = ast.parse(path.read_text("utf-8")).body[0].end_lineno + 2
            linked = tutorials.get(path) or tutorials.get(PACKAGE / "ops" / path.name, [])
            links = ", ".join(f":doc:`{one.title} </tutorials/{one.path.stem}>`" for one in linked)
            body = [
                ":hide-toc:", "",  # the contents have one heading only; the code needs the width of 120 columns
                *heading(title), *[f"Tutorial: {links}", ""] * bool(links),
                *to_rst(docstring.partition("\n")[2], names),
                *heading("The code", "-"), *code_of(path, first_line),
            ]
            write(DOCS / "book" / f"{page}.rst", body, made)
    write(DOCS / "book" / "index.rst", index, made)


def write_one_page(made: set[Path]) -> None:
    """Write the lines of tutorials/one_page_gpt.py with their notes; docs/one_page.md includes them."""

    def page_of(link: re.Match[str]) -> str:
        path = ROOT / link[1]
        return f"</{'tutorials/' + path.stem if path.suffix == '.md' else 'book/' + chapter_pages()[path][0]}>"

    lines = code_of(ROOT / "tutorials" / "one_page_gpt.py", 1)
    lines = [re.sub(r"<((?:tutorials|numpy_attention)/[\w./-]+)>", page_of, line) for line in lines]
    write(DOCS / "book" / "one_page_gpt.inc", [".. container:: one-page", "", *("   " + line for line in lines)], made)


def write_reference(made: set[Path]) -> None:
    """Write one page per part, with every public name."""
    index = [*heading("Reference"), ("Every public name, in reading order. ``import numpy_attention as na`` provides "
             "the names of Parts I to IV and VII, and Part VI as ``na.inside``."), ""]
    listed, public = [], set(public_names())
    for part, title in REFERENCE.items():
        names = names_of(part)
        if not names:
            continue
        module = importlib.import_module(f"numpy_attention.{part}")
        in_na = part in ("ops", "layers", "models", "training", "recent", "beyond")
        place = "numpy_attention" if in_na else f"numpy_attention.{part}"
        prose = to_rst((module.__doc__ or "").partition("\n")[2])
        page = [*heading(title), *prose, f".. py:currentmodule:: {place}", ""]
        index += [*heading(title, "-"), ".. list-table::", "   :class: names", "   :widths: auto", ""]
        for name in names:
            obj = getattr(module, name)
            kind = "class" if inspect.isclass(obj) else "function" if callable(obj) else "data"
            page.append(f".. auto{kind}:: {name}")
            if kind == "class":
                page += ["   :members:", *["   :show-inheritance:"] * (obj.__bases__ != (object,))]
            page.append("")
            index += [f"   * - :py:obj:`~{place}.{name}`", f"     - {inline(summary(obj), public)}"]
        name = part.rpartition(".")[2]
        write(DOCS / "api" / f"{name}.rst", page, made)
        index.append("")
        listed.append(f"   {name}")
    write(DOCS / "api" / "index.rst", [*index, ".. toctree::", "   :hidden:", "", *listed], made)


def summary(obj: object) -> str:
    """The first sentence of a docstring."""
    first = " ".join((inspect.getdoc(obj) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z])", first)[0].rstrip(":")


def write_tutorials(made: set[Path]) -> None:
    """Write the tutorials as `show_stored` shows them, each with a link to its notebook, and the notebooks.

    Raises: SystemExit if the stored outputs of a real model are not of the code of a tutorial.
    """
    import nbformat

    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tutorials").glob("[0-9]*.md"))}
    if wrong := "\n".join(filter(None, (misfit(text, path.stem) for path, text in texts.items()))):
        raise SystemExit(wrong)  # Sphinx would add a traceback to the message of any other exception
    notebooks: list[Path] = []
    for path, text in texts.items():
        notebooks.append(DOCS / "notebooks" / f"{path.stem}.ipynb")
        write(notebooks[-1], [nbformat.writes(notebook_of(text))], made)
        link = (
            f"{{download}}`Download as a notebook </notebooks/{path.stem}.ipynb>`, or {{download}}`the project with "
            f"all notebooks </notebooks/{BUNDLE}.zip>` (a zip file){sources_of(path)}"
        )
        if stored_names(text):
            link += ("\n\nOutputs with the line *from a run with the real model* are stored outputs. This command "
                     f"makes them again: `{command_for(path.stem)}`.")
        title = re.search(r"^# .+$", text, re.MULTILINE)
        page = show_stored(text, path.stem)
        page = page.replace(title[0], f"{title[0]}\n\n{link}", 1) if title else page
        write(DOCS / "tutorials" / path.name, [relink(page, path.parent)], made)
    write(DOCS / "tutorials" / "index.md", [contents.index_page()], made)
    write_bundle(DOCS / "notebooks" / f"{BUNDLE}.zip", notebooks)
    made.add(DOCS / "notebooks" / f"{BUNDLE}.zip")


def write_checked(made: set[Path]) -> None:
    """Write the pages about what is checked, and their index, which also explains their format."""
    pages = importlib.import_module("numpy_attention.tutor.page").all_pages()
    rows = [
        f"| [{page.title}]({page.name}.md) | {page.chapter} | {len(page.rows) or ''} | {len(page.mistakes) or ''} | "
        f"{', '.join(f'`{one.name}`' for one in page.exercises)} |"
        for page in pages
    ]
    names = [page.name for page in pages]
    for name in names:
        text = relink((CHECKED / f"{name}.md").read_text("utf-8"), CHECKED)
        write(DOCS / "checked" / f"{name}.md", ["---", "hide-toc: true", "---", text], made)
    text = relink((CHECKED / "README.md").read_text("utf-8"), CHECKED).partition("\n")[2].replace("\n## ", "\n### ")
    write(DOCS / "checked" / "index.md", [
        "# What is checked, known mistakes, exercises", "",
        "| page | chapter | cases | mistakes | exercises |", "|---|---|---|---|---|", *rows, "",
        "## How to read a page, and how to change it", text,
        "```{toctree}", ":hidden:", "", *names, "```",
    ], made)


def sources_of(path: Path) -> str:
    """The links from a tutorial to the chapters of the source that it names."""
    links = []
    for source in filter(chapter_pages().get, contents.read(path).sources):
        page, title = chapter_pages()[source]
        label = title.partition(": ")[0].partition(". ")[2] if title.startswith("Chapter ") else source.name
        links.append(f"[{label}](/book/{page}.rst)")
    return " · The source: " + ", ".join(links) if links else ""


def relink(text: str, folder: Path) -> str:
    """Replace links to other files of the repository by links to the pages made from these files."""
    pages = {path: f"/book/{page}" for path, (page, _) in chapter_pages().items()}

    def turn(link: re.Match[str]) -> str:
        target = (folder / link["target"]).resolve()
        if target.parent == CHECKED and target.suffix == ".md":
            return f"[{link['text']}](/checked/{target.stem.replace('README', 'index')}.md{link['anchor']})"
        if target.parent == TUTORIALS and target.suffix == ".md":
            return f"[{link['text']}](/tutorials/{target.name}{link['anchor']})"
        if target in INDEXES:
            return f"[{link['text']}]({INDEXES[target]}{link['anchor']})"
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
    chapter_pages.cache_clear()
    made: set[Path] = set()
    write_book(made)
    write_one_page(made)
    write_reference(made)
    write_tutorials(made)
    write_checked(made)
    for folder in ("api", "book", "checked", "notebooks", "tutorials"):
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
