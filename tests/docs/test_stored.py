"""The stored outputs of the real models are the outputs of the code of the tutorials."""

from pathlib import Path

import pytest
import stored
from stored import misfit, show_stored, stored_names

from docs import real_outputs

ROOT = Path(__file__).parents[2]
TUTORIALS = {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "tutorials").glob("[0-9]*.md"))}


def tutorial(*cells: str) -> str:
    return "\n\n".join(f"```{{code-cell}} ipython3\n:tags: [real-model]\n\n{cell}\n```" for cell in cells)


@pytest.mark.parametrize("name", TUTORIALS)
def test_stored_outputs_fit_the_code_of_the_tutorial(name: str) -> None:
    assert not misfit(TUTORIALS[name], name)


def test_every_stored_output_has_a_tutorial() -> None:
    needed = {name for name, text in TUTORIALS.items() if stored_names(text)}
    assert {path.name for path in stored.STORED.iterdir()} == needed


def test_command_stores_the_output_of_each_cell_and_other_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "STORED", tmp_path / "stored")
    monkeypatch.setattr(real_outputs, "STORED", tmp_path / "stored")
    path = tmp_path / "t.md"
    path.write_text(tutorial(
        "x = 3.0", 'print(f"{x:.1f} nats")', "[x]",
        "from numpy_attention.app.plots import new_figure\n\nfigure = new_figure(2, x)\nfigure"), "utf-8")
    real_outputs.store(path)
    text, folder = path.read_text("utf-8"), stored.STORED / "t"
    assert not misfit(text, "t")
    assert {n: (folder / f"{name}.txt").read_text("utf-8") for n, name in stored_names(text).items()} == {
        1: "", 2: "3.0 nats\n", 3: "[3.0]\n", 4: ""}
    assert [path.name[:2] for path in folder.glob("*.svg")] == ["04"]
    assert show_stored(text, "t").count(":tags: [real-model, remove-output]") == 4
    assert "no output of this code is stored" in misfit(text.replace("nats", "bits"), "t")
