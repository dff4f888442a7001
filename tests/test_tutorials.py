"""Every tutorial runs from top to bottom, draws its pictures, and has all parts of a tutorial."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.every import each
from tests.pretrained.test_real_models import fetched

TUTORIALS = sorted((Path(__file__).parents[1] / "tutorials").glob("[0-9][0-9]*.md"))
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::[^\n]*\n)*\n?(.*?)^```$", re.MULTILINE | re.DOTALL)

each_tutorial = each(TUTORIALS, lambda path: path.stem)
OF_REAL_MODELS = [path for path in TUTORIALS if "located(" in path.read_text("utf-8")]


def code_cells(text: str) -> list[str]:
    return [match[1] for match in CELL.finditer(text)]


def number_of(path: Path) -> str:
    """The number in the file's name: "1" for 01-name.md, "4b" for 04b-name.md."""
    return path.name.partition("-")[0].removeprefix("0")


def prose_of(text: str) -> str:
    """The text without header, code, formulas and literature."""
    text = text.partition("## Further reading")[0]
    text = re.sub(r"\A---.*?^---$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\$\$$.*?^\$\$$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\$[^$\n]+\$|`[^`\n]+`|\]\([^)\n]*\)", "", text)


def run_cell(source: str, namespace: dict[str, Any], name: str) -> Any:
    """Run a cell like a notebook: return the value of its last line, and draw this value if it is a figure."""
    tree = ast.parse(source, filename=name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if last is None:
        return None
    shown = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    if hasattr(shown, "_repr_png_"):
        assert shown._repr_png_().startswith(b"\x89PNG")
    return shown


def run_all(path: Path) -> dict[str, Any]:
    """Run all cells in order, and return the names that they define."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    pictures = 0
    for n, source in enumerate(code_cells(path.read_text("utf-8")), start=1):
        shown = run_cell(source, namespace, f"{path.name}, cell {n}")
        pictures += hasattr(shown, "_repr_png_")
    assert pictures, "a tutorial must have a picture"
    return namespace


def statements_of(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements in their order, also those in loops and `with` blocks, but not those in functions."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for block in ("body", "orelse", "handlers", "finalbody"):
                yield from statements_of(getattr(statement, block, []))


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path / "no models"))
    assert run_all(path).get("real") is not True  # no real model was used; in tutorial 14, `real` is a number


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_REAL_MODELS, ids=lambda path: path.stem)
def test_tutorial_runs_with_the_real_model(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched("smollm2")
    monkeypatch.chdir(tmp_path)
    assert run_all(path)["real"]


@each_tutorial
def test_tutorial_has_all_parts(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.search(rf"^# {number_of(path)}\. \S", text, re.MULTILINE)
    for part in (r"\*\*You will do\*\*", r"\*\*You will learn\*\*", r"\*\*You need\*\*.* \d+ minutes"):
        assert re.search(part, text), part
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    for part in ("The idea in a picture", "What goes wrong", "Exercises", "Further reading"):
        assert any(heading.startswith(part) for heading in headings), f"no part '{part}'"
    assert "gradcheck(" in text
    if number_of(path).isdigit():
        assert re.search(r"python -m numpy_attention grade tutorials/exercises/\w+\.py", text)


@each_tutorial
def test_every_number_in_the_prose_is_asserted_in_a_cell(path: Path) -> None:
    text = path.read_text("utf-8")
    asserted = " ".join(line for cell in code_cells(text) for line in cell.splitlines() if "assert" in line)
    for number in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)", prose_of(text)):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", asserted), f"{number} is quoted, not asserted"


@each_tutorial
def test_targets_of_all_links_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
    for target in re.findall(r"grade (tutorials/exercises/\w+\.py)", text):
        assert (path.parents[1] / target).exists(), target
