"""The index of the tutorials agrees with the tutorials."""

import re
from pathlib import Path

import contents
import pages

from tests.every import each

TUTORIALS = sorted((pages.ROOT / "tutorials").glob("[0-9]*.md"))
INDEX = contents.index_page()


def cells_of_row(path: Path) -> list[str]:
    row = re.search(rf"^\| (\[[^\n]*\]\({path.name}\) \|.*) \|$", INDEX, re.MULTILINE)
    assert row, f"no row for {path.name}"
    return row[1].split(" | ")


@each(TUTORIALS, lambda path: path.stem)
def test_every_tutorial_has_a_row_with_its_time_needs_result_and_exercises(path: Path) -> None:
    text = path.read_text("utf-8")
    title, minutes, needs, after, exercises = cells_of_row(path)
    assert f"\n# {title[1:].partition(']')[0]}\n" in text
    assert f"About {minutes} minutes" in text
    for cell in (needs, after):
        assert len(cell) > 10
        assert cell.count("(") == cell.count(")")
    files = re.findall(r"</\.\./(tutorials/exercises/\w+\.py)>", exercises)
    assert set(files) == set(re.findall(r"tutorials/exercises/\w+\.py", text.partition("\n## Exercises")[2]))
    assert all((pages.ROOT / file).exists() for file in files)
    assert files or exercises == "–"


@each(TUTORIALS[1:], lambda path: path.stem)
def test_every_tutorial_names_a_source_file(path: Path) -> None:
    assert contents.read(path).sources or path.stem.startswith("04b")
