"""A page is read part by part; every exercise has texts: what is checked, three hints, and a right solution."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.grading import grade_module
from numpy_attention.tutor.page import FOLDER, exercise_texts, read_page, sections, table
from tests.every import each
from tests.tutor import hand_in


def test_every_exercise_has_texts() -> None:
    assert list(exercise_texts()) == list(EXERCISES)


@each(EXERCISES)
def test_page_has_title_checks_hints_and_reasoning(name: str) -> None:
    page = exercise_texts()[name]
    assert page.title[0].isalnum()
    assert page.checked.endswith(".")
    assert len(set(page.hints)) == 3
    assert all(len(hint) > 40 and hint.endswith((".", ")", "?")) for hint in page.hints)
    assert "  " not in page.checked + "".join(page.hints), "line ends must be single spaces"
    assert len(page.reasoning) > 200
    long = [line for line in page.solution.splitlines() if len(line) > 105]
    assert not long, f"a terminal shows the solution: at most 101 columns in text and code, got {long}"


@pytest.mark.parametrize("name", hand_in.by_default_a_few(EXERCISES))
def test_solution_passes(name: str) -> None:
    exercise = EXERCISES[name]
    own: dict[str, Any] = {}
    exec((hand_in.FOLDER / f"{name}.py").read_text("utf-8") + "\n" + exercise_texts()[name].code, own)
    for method in {"backward", "step"} & own.keys():
        setattr(own[exercise.subjects[0]], method, own[method])
    grade = grade_module(exercise, SimpleNamespace(**own), examples=1)
    assert grade.state == "right", grade.text


@each(EXERCISES)
def test_tutorial_lists_the_exercise(name: str) -> None:
    (tutorial,) = (hand_in.FOLDER.parent).glob(f"{exercise_texts()[name].tutorial:02d}-*.md")
    assert f"exercises/{name}.py" in tutorial.read_text("utf-8"), f"{tutorial.name} does not list the exercise"


def test_sections_and_tables() -> None:
    text = "# A\n\n```python\n# no heading\n```\n\n## B\ntext\n"
    assert [(one.level, one.title, one.line) for one in sections(text)] == [(1, "A", 1), (2, "B", 7)]
    text = (
        "In every case: `op` is `f`; `sizes` is `d = 2`.\n\n"
        "| case | inputs | sizes |\n|---|---|---|\n| `one` | `X, y: a\\|b` | |\n"
        "| `two` | `X` | `d = 3` |\n\n| case | inputs |\n|---|---|\n| `g` | `X` |\n"
    )
    one, two, other = table(text, "case", {"X": "x: int<V|-1> d"})
    assert one == {"op": "f", "case": "f: one", "inputs": "x: int<V|-1> d, y: a|b", "sizes": "d = 2"}
    assert (two["case"], two["sizes"]) == ("f: two", "d = 3")
    assert other == {"case": "g", "inputs": "x: int<V|-1> d"}, "a line above one table is not for the next table"


@pytest.mark.parametrize(("old", "new", "message"), [
    ("Hides: with a width of 1", "It hides: with a width of 1", "why a test may miss the mistake"),
    ("@@ softmax_backward\n", "", "a diff must begin with a line"),
    ("| options | first |", "| optoins | first |", "unknown column optoins"),
    ("### Hints", "### Help", "needs the parts Hints and Solution"),
    ("| `softmax: axis 0` | `x: A B C` |", "| `softmax: axis 0` |", "a row must have 5 cells"),
])
def test_page_with_a_wrong_part_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (FOLDER / "softmax.md").read_text("utf-8")
    assert old in text
    file = tmp_path / "softmax.md"
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^softmax\.md(, line \d+)?: .*{message}"):
        read_page(file)
