"""The notebooks to download: one file for each tutorial, and a zip file with all of them.

A notebook has the cells of its tutorial, a cell that installs the package, and the outputs of the build. The zip file
has the folders of the repository and the source of the package. So all links work there, also without a network.
"""

import re
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL = '''# Install the package from the folder above this notebook, if it is not installed yet.
import importlib.util

if importlib.util.find_spec("numpy_attention") is None:
    %pip install -q "..[tutorials]"'''
BUNDLE = "attention-notebooks"
FILES = (
    "pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "tutorials/.jupyter/overrides.json",
    "tutorials/one_page_gpt.py",
)
PATTERNS = (
    "numpy_attention/**/*", "tutorials/exercises/*.py", "docs/*.md", "docs/derivations/*.md", "docs/_static/**/*",
)
OTHER_TUTORIAL = re.compile(r"(\]\(\d\d\w?-[\w-]+)\.md\b")


def notebook_of(text: str):
    """The notebook of a tutorial, with the install cell as its first code cell."""
    from myst_nb.core.read import read_myst_markdown_notebook
    from nbformat import v4

    notebook = read_myst_markdown_notebook(text, add_source_map=False)
    first = next(i for i, cell in enumerate(notebook.cells) if cell["cell_type"] == "code")
    notebook.cells.insert(first, v4.new_code_cell(INSTALL))
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i}"
        if cell["cell_type"] == "markdown":
            cell["source"] = OTHER_TUTORIAL.sub(r"\1.ipynb", cell["source"])
    return notebook


def add_outputs(notebook, executed) -> None:
    """Copy the outputs of the executed page. There the asserts of a cell are in a cell after it, without outputs."""
    ran = [cell for cell in executed.cells if cell["cell_type"] == "code"]
    for cell in notebook.cells:
        if cell["cell_type"] != "code" or cell["source"] == INSTALL:
            continue
        lines = set(cell["source"].splitlines())
        at = next((i for i, one in enumerate(ran) if set(one["source"].splitlines()) <= lines), None)
        if at is not None:  # else the page has no such cell
            cell["outputs"], cell["execution_count"] = ran[at]["outputs"], ran[at]["execution_count"]
            ran = ran[at + 1 :]


def write_bundle(path: Path, notebooks: list[Path]) -> None:
    """Write the zip file; equal contents give equal bytes."""
    found = {ROOT / name for name in FILES} | {one for pattern in PATTERNS for one in ROOT.glob(pattern)}
    members = {one.relative_to(ROOT): one for one in found if one.is_file() and "__pycache__" not in one.parts}
    members |= {Path("tutorials", one.name): one for one in notebooks}
    with zipfile.ZipFile(path, "w") as bundle:
        for name in sorted(members):
            entry = zipfile.ZipInfo(f"{BUNDLE}/{name.as_posix()}")
            entry.external_attr = 0o644 << 16
            bundle.writestr(entry, members[name].read_bytes(), zipfile.ZIP_DEFLATED)


def finish(app, error) -> None:
    """After the build, add the outputs to the notebooks, and copy the files over the downloads of the site."""
    import nbformat

    if error is not None or app.builder.format != "html":
        return
    folder, ran = ROOT / "docs" / "notebooks", Path(app.outdir).parent / "jupyter_execute" / "tutorials"
    notebooks = sorted(folder.glob("*.ipynb"))
    for path in notebooks:
        notebook = nbformat.read(path, 4)
        if (ran / path.name).exists():
            add_outputs(notebook, nbformat.read(ran / path.name, 4))
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    write_bundle(folder / f"{BUNDLE}.zip", notebooks)
    for name, (_, download) in app.env.dlfiles.items():
        path = Path(app.srcdir, name)
        if path.parent == Path(app.srcdir, "notebooks"):
            Path(app.outdir, "_downloads", download).write_bytes(path.read_bytes())


def setup(app):
    """Add the outputs when all pages are built."""
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}
