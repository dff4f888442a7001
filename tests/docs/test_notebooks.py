"""The notebooks to download: all links work in the zip file."""

import posixpath
import re
import zipfile
from pathlib import Path

from notebooks import BUNDLE, OTHER_TUTORIAL, write_bundle

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("[0-9]*.md"))
LINKS = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


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
