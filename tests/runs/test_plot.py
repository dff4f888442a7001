"""loss.png: a picture where matplotlib is, whole or not at all."""

import pytest

from numpy_attention import plots
from numpy_attention.runs.plot import draw_losses

LOG = [{"step": step, "loss": 3.0 / step} for step in range(1, 9)]


def test_the_curve_is_a_png_with_its_levels(tmp_path, monkeypatch):
    asked = {}
    curves = plots.training_curves

    def training_curves(log, levels):
        asked.update(levels)
        return curves(log, levels)

    monkeypatch.setattr(plots, "training_curves", training_curves)
    assert draw_losses(LOG, {"bigram": 2.5}, tmp_path / "loss.png")
    assert asked == {"bigram 2.500": 2.5}
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def test_without_matplotlib_there_is_none(tmp_path, monkeypatch):
    def missing(*arguments):
        raise ModuleNotFoundError("no matplotlib")

    monkeypatch.setattr(plots, "training_curves", missing)
    assert not draw_losses(LOG, {}, tmp_path / "loss.png")
    assert not list(tmp_path.iterdir())


def test_a_picture_that_fails_midway_leaves_the_old_one(tmp_path, monkeypatch):
    def half(figure, path, dpi):
        path.write_bytes(b"half")
        raise OSError("disk full")

    (tmp_path / "loss.png").write_bytes(b"old")
    monkeypatch.setattr(plots, "save", half)
    with pytest.raises(OSError, match="disk full"):
        draw_losses(LOG, {}, tmp_path / "loss.png")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
