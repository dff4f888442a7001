"""loss.png: a picture if matplotlib is installed, written atomically."""

import math

import pytest
from numpy_attention.training.plot import draw, loss_curves

from numpy_attention import plots

LOG = [{"step": step, "loss": 3.0 / step} for step in range(1, 9)]


def draw_losses(log, references, path):
    return draw(lambda: loss_curves(log, references), path)


def test_loss_picture_is_a_png_with_levels(tmp_path, monkeypatch):
    asked = {}
    curves = plots.training_curves

    def training_curves(log, levels):
        asked.update(levels)
        return curves(log, levels)

    monkeypatch.setattr(plots, "training_curves", training_curves)
    assert draw_losses(LOG, {"bigram": 2.5}, tmp_path / "loss.png") == ", loss.png"
    assert asked == {"bigram 2.500": 2.5}
    picture = (tmp_path / "loss.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, _ = curves(LOG, {}).get_size_inches()
    assert int.from_bytes(picture[16:20], "big") == round(120 * width)  # that is wide enough, and a quick one
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def test_without_matplotlib_no_picture_is_written(tmp_path, monkeypatch):
    def missing(*arguments):
        raise ModuleNotFoundError("no matplotlib")

    monkeypatch.setattr(plots, "training_curves", missing)
    assert draw_losses(LOG, {}, tmp_path / "loss.png") == " (pip install matplotlib for loss.png)"
    assert not list(tmp_path.iterdir())


def test_failed_drawing_keeps_the_old_picture(tmp_path, monkeypatch, capsys):
    def half(figure, path, **options):
        path.write_bytes(b"half")
        raise OSError("disk full")

    (tmp_path / "loss.png").write_bytes(b"old")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    assert draw_losses(LOG, {}, tmp_path / "loss.png") == ""
    assert capsys.readouterr().err == "numpy-attention: there is no picture of the losses, loss.png: disk full\n"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("log", [[], [{"step": 3, "skipped": "the loss is nan"}]])
def test_log_without_a_loss_gives_no_picture(tmp_path, log):
    assert draw_losses(log, {}, tmp_path / "loss.png") == " (no loss.png: no line of log.jsonl holds a loss)"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("loss", [math.nan, math.inf, 3e38, 1e300, -1e300, 2**62])
def test_every_valid_loss_can_be_drawn(tmp_path, loss):
    log = [*LOG, {"step": 2**62, "loss": loss, "val_loss": loss}]
    assert draw_losses(log, {}, tmp_path / "loss.png") == ", loss.png"
    assert (tmp_path / "loss.png").exists()


def test_draw_writes_any_figure(tmp_path):
    assert draw(lambda: plots.training_curves(LOG), tmp_path / "other.png") == ", other.png"
    assert (tmp_path / "other.png").read_bytes().startswith(b"\x89PNG")

    def missing():
        raise ModuleNotFoundError("no matplotlib")

    assert draw(missing, tmp_path / "another.png") == " (pip install matplotlib for another.png)"
    assert not (tmp_path / "another.png").exists()
