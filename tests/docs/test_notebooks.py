"""The notebooks to download: outputs come from the right cells, and all links work in the zip file."""

import posixpath
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from notebooks import BUNDLE, INSTALL, OTHER_TUTORIAL, add_outputs, write_bundle

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("[0-9]*.md"))
LINKS = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def notebook(*cells: tuple[str, list[str]]) -> Any:
    """A notebook with code cells, each with its source and its outputs."""
    return SimpleNamespace(cells=[
        {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": i}
        for i, (source, outputs) in enumerate(cells, start=1)
    ])


def test_outputs_come_from_the_cells_of_the_page() -> None:
    made = notebook((INSTALL, []), ("a = 1\nassert a == 1\nprint(a)", []), ("print(2)", []), ("print(3)", []))
    page = notebook(("a = 1\nprint(a)", ["1"]), ("assert a == 1", []), ("print(2)", ["2"]), ("print(3)", ["3"]))
    add_outputs(made, page)
    assert [cell["outputs"] for cell in made.cells] == [[], ["1"], ["2"], ["3"]]


def test_cells_that_the_page_does_not_have_get_no_outputs() -> None:
    made = notebook(("print(1)", []), ("print(2)", []), ("print(3)", []))
    add_outputs(made, notebook(("print(1)", ["1"]), ("print(3)", ["3"])))
    assert [cell["outputs"] for cell in made.cells] == [["1"], [], ["3"]]


def test_links_to_tutorials_become_links_to_notebooks() -> None:
    text = "[a](02-queries-keys-values.md), [b](../docs/faq.md), [c](13-encoder-and-decoder.md#masks)"
    expected = "[a](02-queries-keys-values.ipynb), [b](../docs/faq.md), [c](13-encoder-and-decoder.ipynb#masks)"
    assert OTHER_TUTORIAL.sub(r"\1.ipynb", text) == expected


def test_zip_file_has_every_target_of_a_link_and_no_compiled_files(tmp_path: Path) -> None:
    made = [tmp_path / f"{path.stem}.ipynb" for path in TUTORIALS]
    for path in made:
        path.write_text("{}")
    write_bundle(tmp_path / "a.zip", made)
    write_bundle(tmp_path / "b.zip", made[::-1])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    names = set(zipfile.ZipFile(tmp_path / "a.zip").namelist())
    assert {f"{BUNDLE}/pyproject.toml", f"{BUNDLE}/numpy_attention/__init__.py"} <= names
    assert {f"{BUNDLE}/tutorials/exercises/softmax.py", f"{BUNDLE}/tutorials/one_page_gpt.py"} <= names
    assert not [name for name in names if "__pycache__" in name]
    for path in TUTORIALS:
        for target in LINKS.findall(OTHER_TUTORIAL.sub(r"\1.ipynb", path.read_text("utf-8"))):
            if "://" not in target:
                assert posixpath.normpath(f"{BUNDLE}/tutorials/{target}") in names, f"{path.name}: {target}"
