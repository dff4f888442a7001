"""The tutorials' index, the map, the reference index and the links between tutorials and chapters have no gaps."""

import re
from pathlib import Path

import contents
import pages
import pytest

from docs.diagrams.work import book_map
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


def test_index_lists_every_tutorial_in_the_menu() -> None:
    assert re.findall(r"^(\d\d[\w-]+)$", INDEX, re.MULTILINE) == [path.stem for path in TUTORIALS]


def test_a_tutorial_needs_only_earlier_tutorials() -> None:
    for one in contents.tutorials():
        assert all(f"{number:02}-" < one.path.name for number in one.required), one.path.name


def test_tutorial_without_a_time_is_refused_with_its_name(tmp_path: Path) -> None:
    page = tmp_path / "03-page.md"
    page.write_text("# 3. A page\n\n**You will do**: nothing.\n\n**You need**: time.\n\n")
    with pytest.raises(ValueError, match=r"03-page.md: the tutorial must hold 'About N minutes'"):
        contents.read(page)


def test_map_shows_every_title_and_all_minutes() -> None:
    drawing = book_map()
    written = " ".join(word.text for word in drawing.words)
    for one in contents.tutorials():
        assert one.title in written
    shown = sum(int(minutes) for minutes in re.findall(r"(\d+) minutes(?= |$)", written))
    assert shown == sum(one.minutes for one in contents.tutorials())


def test_map_has_the_arrows_of_the_tutorials_needs_and_no_arrow_that_follows_from_others() -> None:
    arrows = contents.arrows()
    assert {(0, 1), (1, 5), (5, 10), (5, 11), (10, 19)} <= arrows
    assert (1, 11) not in arrows  # tutorial 11 needs 3, and also 9, which needs 3
    assert len(book_map().lines) == len(arrows)


def test_attention_links_from_its_tutorial_to_its_chapter_and_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tutorial = pages.ROOT / "tutorials" / "04-scaled-dot-product-attention.md"
    assert "The source: [Scaled dot-product attention](/book/ops-06-attention.rst)" in pages.sources_of(tutorial)
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    pages.write_book(set())
    chapter = (tmp_path / "book" / "ops-06-attention.rst").read_text("utf-8")
    assert f"\nTutorial: :doc:`4. Scaled dot-product attention </tutorials/{tutorial.stem}>`\n" in chapter


@each(TUTORIALS[1:], lambda path: path.stem)
def test_every_tutorial_names_a_source_file(path: Path) -> None:
    assert contents.read(path).sources or path.stem.startswith("04b")


def test_every_name_of_the_reference_index_has_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    pages.write_reference(set())
    index = (tmp_path / "api" / "index.rst").read_text("utf-8")
    rows = re.findall(r"^   \* - :py:obj:`~numpy_attention\.(?:\w+\.)?(\w+)`\n     - (.*)$", index, re.MULTILINE)
    assert [name for name, _ in rows] == [name for part in pages.REFERENCE for name in pages.names_of(part)]
    assert [name for name, text in rows if len(text) < 10] == []
