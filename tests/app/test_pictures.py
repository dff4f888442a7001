"""The pictures of a run: drawn from its log, and never a reason to fail after a training."""

from pathlib import Path

import pytest

from numpy_attention import plots
from numpy_attention.app.pictures import draw, pictures
from numpy_attention.app.tasks import make_task
from numpy_attention.pretrained.shipped import INDUCTION
from numpy_attention.training.config import TrainConfig
from tests.app.commands import text

__all__ = ["text"]
LOG = '{"step": 1, "loss": 3.0, "val_loss": 3.1}\n{"step": 2, "loss": 2.0}\n'


def test_loss_picture_has_the_reference_losses_of_the_task(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.jsonl").write_text(LOG)
    task = make_task(TrainConfig(text=str(text)))
    saved = []
    monkeypatch.setattr(plots, "save", lambda figure, path, dpi: saved.append((figure, path)))
    assert pictures(task, tmp_path) == ", loss.png"
    ((figure, path),) = saved
    assert path == tmp_path / "loss.png"
    levels = [annotation.get_text() for annotation in figure.axes[0].texts]
    assert levels == [f"{name} {loss:.3f}" for name, loss in task.reference_lines().items()] != []


def test_induction_has_two_more_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    monkeypatch.setattr(plots, "save", lambda figure, path, dpi: saved.append(path.name))
    assert pictures(make_task(TrainConfig(task="induction")), INDUCTION) == ", loss.png, positions.png, heads.png"
    assert saved == ["loss.png", "positions.png", "heads.png"]


def test_failed_picture_is_one_line_and_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(figure: object, path: Path, **options: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "loss.png").write_bytes(b"old")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    assert draw(lambda: plots.training_curves([{"step": 1, "loss": 3.0}]), tmp_path / "loss.png") == ""
    message = "numpy-attention: there is no picture, loss.png: [Errno 28] No space left on device\n"
    assert capsys.readouterr().err == message
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_without_matplotlib_the_list_of_files_says_what_to_install(tmp_path: Path) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("no matplotlib")

    assert draw(missing, tmp_path / "loss.png") == " (pip install matplotlib for loss.png)"
