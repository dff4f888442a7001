"""The stored outputs of the real models are the outputs of the code of the tutorials, and the pages show them."""

import json
from pathlib import Path

import pytest
import stored
from asserts import TITLE
from stored import cells_depending_on, misfit, show_stored, stored_names

from docs import real_outputs

ROOT = Path(__file__).parents[2]
TUTORIALS = {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "tutorials").glob("[0-9]*.md"))}
CELLS = ('a = 1\nprint(a)', 'path = located("smollm2")  # the real model\nrows = []', 'print(a)',
         ':tags: [hide-input]\n:mystnb: {image: {alt: "a \\"line\\""}}\n\nrows.append(path)\nplot(rows)')


def tutorial(*cells: str) -> str:
    return "\n\n".join(f"```{{code-cell}} ipython3\n{cell}\n```" for cell in cells)


def store(folder: Path, text: str) -> None:
    for name in stored_names(text).values():
        (folder / "t").mkdir(exist_ok=True)
        (folder / "t" / f"{name}.txt").write_text("", "utf-8")


@pytest.mark.parametrize("name", TUTORIALS)
def test_stored_outputs_fit_the_code_of_the_tutorial(name: str) -> None:
    assert not misfit(TUTORIALS[name], name)


def test_every_stored_output_has_a_tutorial() -> None:
    needed = {name for name, text in TUTORIALS.items() if stored_names(text)}
    assert {path.name for path in stored.STORED.iterdir()} == needed


@pytest.mark.parametrize(("old", "new", "cells"), [
    ("print(a)\n```\n\n```{code-cell} ipython3\npath", "print(2 * a)\n```\n\n```{code-cell} ipython3\npath", "2, 4"),
    ("plot(rows)", "plot(rows[1:])", "4"),
    ("rows = []", "rows = []\nprint(path)", "2, 4"),
])
def test_stored_output_of_other_code_is_refused(
    old: str, new: str, cells: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored, "STORED", tmp_path)
    text = tutorial(*CELLS)
    store(tmp_path, text)
    assert not misfit(text, "t")
    assert old in text
    assert misfit(text.replace(old, new), "t") == (
        f"tutorials/t.md: cell {cells}: no output of this code is stored; run the tutorial with the real models: "
        "python -m docs.real_outputs t")
    assert "a stored output has no cell" in misfit(tutorial(*CELLS[:3]), "t")


def test_comments_empty_lines_and_prose_may_change() -> None:
    text = tutorial(*CELLS)
    assert stored_names(text.replace("the real model", "#").replace("rows = []", "\nrows = []  # no rows") + "\nWords")
    assert stored_names(text) == stored_names(
        text.replace("  # the real model", "").replace("rows = []", "\nrows = []  # no rows") + "\n\nWords")


def test_page_shows_the_stored_output_below_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "STORED", tmp_path)
    text = tutorial(*CELLS) + "\n\nThe end."
    store(tmp_path, text)
    (name,) = [name for name in stored_names(text).values() if name.startswith("04")]
    (tmp_path / "t" / f"{name}.txt").write_text("a\n", "utf-8")
    (tmp_path / "t" / f"{name}.svg").write_text("<svg/>", "utf-8")
    page = show_stored(text, "t")
    assert page.count("remove-output") == 2  # the output of the stand-in; cell 3 shows its own output
    assert page.count("from a run with the real model") == 1  # cell 2 prints nothing with the real model
    assert ':tags: [remove-output, hide-input]\n:mystnb: {image: {alt: "a \\"line\\""}}\n\nrows.append' in page
    assert f"/stored/t/{name}.txt\n" in page
    assert f'/stored/t/{name}.svg\n:alt: "a \\"line\\""\n' in page
    assert page.index("plot(rows)") < page.index(f"{name}.txt") < page.index(f"{name}.svg") < page.index("The end.")


@pytest.mark.parametrize(("cells", "found"), [
    (["x = located(1)", "y = 2\nprint(y)", "print(x)"], {1, 3}),
    (["x = located(1)", "x = 3\nprint(x)"], {1}),  # a new value
    (["x = located(1)", "if x:\n    y = 1", "print(y)"], {1, 2, 3}),
    (["x = located(1)", "def f(y):\n    return x + y", "def g(x):\n    return x", "f(0)", "g(0)"], {1, 4}),
    (["x = located(1)\ny = {}", "for n in 1, 2:\n    y[n] = x", "print(y)"], {1, 2, 3}),
    (["x = located(1)\nimport numpy as np", "np.show(x)", "np.show()"], {1, 2}),
    (["try:\n    x = located(1)\nexcept OSError as e:\n    print(e)",
      "try:\n    f()\nexcept ValueError as e:\n    print(e)"], {1}),
    (["x = located(1)", "assert x"], {1}),
    (["x = 1\nprint(x)"], set()),
])
def test_cells_that_depend_on_a_real_model_are_found(cells: list[str], found: set[int]) -> None:
    assert cells_depending_on("located", tutorial(*cells)) == found


@pytest.fixture
def stored_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tutorial whose outputs the command has just stored."""
    monkeypatch.setattr(stored, "STORED", tmp_path / "stored")
    monkeypatch.setattr(real_outputs, "STORED", tmp_path / "stored")
    path = tmp_path / "t.md"
    path.write_text(tutorial(
        "def located(name):\n    return 3.0", 'x = located("model")', 'print(f"{x:.1f} nats")', "[x]",
        "from numpy_attention.app.plots.style import new_figure\n\nfigure = new_figure(2, x)\nfigure"), "utf-8")
    real_outputs.store(path)
    return path


def test_command_stores_what_each_cell_prints_returns_and_draws(stored_tutorial: Path) -> None:
    text = stored_tutorial.read_text("utf-8")
    assert not misfit(text, "t")
    folder = stored.STORED / "t"
    written = {n: (folder / f"{name}.txt").read_text("utf-8") for n, name in stored_names(text).items()}
    assert written == {2: "", 3: "3.0 nats\n", 4: "[3.0]\n", 5: ""}
    assert [path.name[:2] for path in folder.glob("*.svg")] == ["05"]


@pytest.mark.parametrize(("printed", "agrees"), [
    ("3.0 nats\n", True), ("3.001\n nats\n", True), ("4.0 nats\n", False), ("3.0 bits\n", False), ("", False),
])
def test_other_output_of_a_build_with_the_real_models_is_reported(
    printed: str, agrees: bool, stored_tutorial: Path,
) -> None:
    picture = {"output_type": "execute_result", "data": {"image/png": "", "text/plain": ["<Figure>"]}}
    value = {"output_type": "execute_result", "data": {"text/plain": ["[3.0]"]}}
    stream = {"output_type": "stream", "name": "stdout", "text": [printed]}
    outputs = [[], [], [stream], [value], [picture]]
    cells = [{"cell_type": "code", "metadata": {}, "outputs": one} for one in outputs]
    asserts = {"mystnb": {"code_prompt_show": TITLE}}
    cells.insert(1, {"cell_type": "code", "outputs": [], "metadata": asserts})
    notebook = stored_tutorial.with_suffix(".ipynb")
    notebook.write_text(json.dumps({"cells": [{"cell_type": "markdown"}, *cells]}), "utf-8")
    found = real_outputs.differences(stored_tutorial, notebook)
    assert [line.partition(" now")[0] for line in found] == ([] if agrees else ["t.md, cell 3"])
