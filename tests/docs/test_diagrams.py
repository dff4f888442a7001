"""The stored diagrams are up to date, are on their pages with their descriptions, and are readable."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace

import contents
import diagrams
import pytest
from docutils import nodes

from docs.diagrams.drawings import DRAWINGS, FOLDER
from docs.diagrams.pen import DARK, KINDS, LIGHT, SIZE, WIDTH, Box, Drawing, wrapped
from tests.every import each

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {drawing.name: drawing for drawing in (draw() for draw in DRAWINGS)}
FOLDERS = (".", "tutorials", "docs", "docs/derivations")
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
IMAGE = re.compile(r"!\[([^]]*)\]\(([^)]*_static/diagrams/([\w-]+)\.svg)\)")
WITH_WIDTH = re.compile(r'<img src="([^"]*_static/diagrams/([\w-]+)\.svg)" width="\d+" alt="([^"]*)">')

each_drawing = each(DRAWN.values(), lambda drawing: drawing.name)


def placed() -> list[tuple[Path, str, str]]:
    """(page, name, description) of every diagram that a page shows."""
    found = [(page, *one) for page in PAGES for one in IMAGE.findall(page.read_text("utf-8"))]
    for path, name, words in WITH_WIDTH.findall((ROOT / "README.md").read_text("utf-8")):
        found.append((ROOT / "README.md", words, path, name))
    assert all((page.parent / path).exists() for page, _, path, _ in found)
    found += [(Path(contents.__file__), *one) for one in IMAGE.findall(contents.index_page())]
    return [(page, name, " ".join(words.split())) for page, words, _, name in found]


def overlap(a: Box, b: Box) -> bool:
    return a.x < b.right and b.x < a.right and a.y < b.bottom and b.y < a.bottom


def within(inner: Box, outer: Box, room: float = 0.0) -> bool:
    return (
        inner.x >= outer.x + room and inner.right <= outer.right - room
        and inner.y >= outer.y and inner.bottom <= outer.bottom
    )


def crosses(line: tuple[float, float, float, float], box: Box) -> bool:
    """Whether any point of a line is inside a box; a point on the border does not count."""
    x0, y0, x1, y1 = line
    inner = Box(box.x + 1, box.y + 1, box.w - 2, box.h - 2)
    points = ((x0 + t / 200 * (x1 - x0), y0 + t / 200 * (y1 - y0)) for t in range(201))
    return any(inner.x < x < inner.right and inner.y < y < inner.bottom for x, y in points)


def contrast(a: str, b: str) -> float:
    """The contrast ratio of two colours, as defined in the web's accessibility guidelines."""
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@each_drawing
def test_stored_file_is_what_the_script_draws(drawing: Drawing) -> None:
    stored = (FOLDER / f"{drawing.name}.svg").read_text(encoding="utf-8")
    assert stored == drawing.svg(), "draw it again: python -m docs.diagrams"


def test_every_stored_file_belongs_to_a_drawing() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(DRAWN)


@each_drawing
def test_drawing_has_a_title_and_a_description_for_screen_readers(drawing: Drawing) -> None:
    root = ET.fromstring(drawing.svg())
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("role") == "img"
    assert title is not None
    assert description is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert title.text
    assert len(description.text or "") > 80


@each_drawing
def test_drawing_is_on_a_page_with_its_description(drawing: Drawing) -> None:
    descriptions = {text for _, name, text in placed() if name == drawing.name}
    assert descriptions == {drawing.description}


def test_tutorials_4_to_15_have_a_diagram() -> None:
    shown = {int(page.name[:2]) for page, _, _ in placed() if page.parent.name == "tutorials"}
    assert shown >= set(range(4, 16))


@each_drawing
def test_text_is_large_enough_on_a_phone(drawing: Drawing) -> None:
    """A page has 355 of a phone's 390 pixels."""
    root = ET.fromstring(drawing.svg())
    assert root.get("viewBox") == f"0 0 {WIDTH} {root.get('height')}"
    assert 355 / WIDTH * SIZE >= 10.5


def faults(drawing: Drawing) -> list[str]:
    """Text that is cut, covered or crossed."""
    paper = Box(0, 0, WIDTH, drawing.height)
    solid = [box for box in drawing.boxes if box.kind not in ("frame", "grid")]
    found = [f"{box} leaves the paper" for box in drawing.boxes if not within(box, paper)]
    for word in drawing.words:
        if not within(word.place, paper, 4) or (word.box and not within(word.place, word.box, 2)):
            found.append(f"{word.text!r} is too wide")
        found += [f"{word.text!r} meets a border" for box in drawing.boxes
                  if overlap(word.place, box) and not within(word.place, box)]
        found += [f"a line runs through {word.text!r}" for line in drawing.lines if crosses(line, word.place)]
    for a, b in combinations(drawing.words, 2):
        found += [f"{a.text!r} meets {b.text!r}"] * overlap(a.place, b.place)
    for line in drawing.lines:
        found += [f"the line {line} runs through {box}" for box in solid if crosses(line, box)]
    return found


@each_drawing
def test_no_text_is_cut_covered_or_crossed(drawing: Drawing) -> None:
    assert drawing.words
    assert faults(drawing) == []


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda d: d.box(100, 20, 60, "far too much for it"), "'far too much for it' is too wide"),
        (lambda d: d.write(300, 40, "beyond the right margin"), "'beyond the right margin' is too wide"),
        (lambda d: (d.write(20, 40, "here"), d.write(30, 45, "there")), "'here' meets 'there'"),
        (lambda d: (d.write(20, 40, "words"), d.arrow((0, 36), (200, 36))), "a line runs through 'words'"),
        (lambda d: (d.box(100, 20, 60, kind="frame", h=40), d.write(40, 40, "across")), "'across' meets a border"),
        (lambda d: (d.box(100, 20, 60, h=40), d.arrow((20, 40), (200, 40))), "the line (20, 40, 200, 40) runs through"),
        (lambda d: d.box(400, 20, 60, h=40), "leaves the paper"),
    ],
)
def test_faults_are_found(spoil: Callable[[Drawing], object], fault: str) -> None:
    drawing = Drawing("spoiled", "Spoiled", "", 100)
    assert faults(drawing) == []
    spoil(drawing)
    assert any(fault in one for one in faults(drawing)), faults(drawing)


@each_drawing
def test_quoted_code_is_in_the_source(drawing: Drawing) -> None:
    for file, code in drawing.quoted:
        source = re.sub(r"\s+", " ", (ROOT / file).read_text("utf-8"))
        assert code in source, f"{file} does not contain: {code}"


def test_two_roads_shows_two_equal_numbers_and_a_different_wrong_one() -> None:
    measured, analytic, wrong = (float(w.text) for w in DRAWN["two-roads"].words if re.fullmatch(r"0\.\d{9}", w.text))
    assert measured == analytic
    assert abs(wrong - analytic) > 0.1


def test_moving_picture_shows_one_scene_at_a_time_and_a_still_with_the_mistake() -> None:
    film = DRAWN["touchable-head"].svg()
    assert len(film) < 500_000
    assert film.count('class="scene still ') == 1
    assert "mistake: diagonal_only" in film.partition('class="scene still ')[2]
    assert ".scene{visibility:hidden}\n.still{visibility:visible}\n@media screen and (prefers-reduced-motion" in film
    spans = []
    for name, steps in re.findall(r"@keyframes (f\d+)\{((?:[\d.]+%\{\w+:\w+\})+)\}", film):
        changes = [*re.findall(r"([\d.]+)%\{visibility:(\w+)\}", steps), ("100.00", "hidden")]
        spans += [(a, b) for (a, look), (b, _) in pairwise(changes) if look == "visible" and a != b]
        assert film.count(f" {name}\">") == 1
    assert spans[0][0] == "0.00"
    assert spans[-1][1] == "100.00"
    assert all(one[1] == following[0] for one, following in pairwise(spans))


def test_mistake_in_the_moving_picture_makes_numbers_of_dscores_and_dq_wrong() -> None:
    film = DRAWN["touchable-head"].svg()
    scenes = film.split('<g class="scene')[1:]
    wrong = [scene.count('class="line wavy"') for scene in scenes]
    assert [bool(count) for count in wrong] == ["mistake: none" not in scene for scene in scenes]
    assert max(wrong) == 9  # of the second and third word; the first word has one key and no gradient


def test_html_page_contains_the_svg_text() -> None:
    for kind, becomes in (("html", nodes.raw), ("latex", nodes.image)):
        picture, diagram = nodes.image(uri="_static/attention.png"), nodes.image(uri="_static/diagrams/block.svg")
        document = nodes.paragraph("", "", picture, diagram)
        app = SimpleNamespace(builder=SimpleNamespace(format=kind), srcdir=str(ROOT / "docs"))
        diagrams.embed(app, document, "page")
        assert [type(child) for child in document] == [nodes.image, becomes]
        assert kind == "latex" or document[1].astext() == DRAWN["block"].svg()


def test_drawing_of_the_attention_backward_uses_the_names_of_the_package() -> None:
    source = (ROOT / "numpy_attention" / "ops" / "attention.py").read_text("utf-8")
    computed = {code.split(" = ")[0] for _, code in DRAWN["attention-backward"].quoted} - {"average"}
    assert computed == {"dweights", "dscores", "dq", "dk", "dv"}
    for name in computed:
        assert re.search(rf"^    {name} = ", source, re.MULTILINE), name


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_has_enough_contrast_to_its_background(look: dict[str, str]) -> None:
    assert look.keys() == LIGHT.keys()
    for fill in ("ground", "faint", "pale-blue", "pale-orange", "pale-green", "pale-purple"):
        assert contrast(look["ink"], look[fill]) > 7.0, fill
    for role in ("soft", "blue", "orange", "green", "purple"):
        assert contrast(look[role], look["ground"]) > 4.0, role
    for fill, stroke in KINDS.values():
        assert fill == "none" or contrast(look[stroke], look[fill]) > 3.0, (fill, stroke)


def test_wrapping_fills_lines_and_keeps_every_word() -> None:
    lines = wrapped("one two three four", 60).split("\n")
    assert " ".join(lines) == "one two three four"
    assert len(lines) > 1
    assert all(len(a) + len(b.split()[0]) > len("one two") for a, b in pairwise(lines))
