"""`gradcheck`: what it prints, and its exit code."""

from numpy_attention.app.main import main
from numpy_attention.tutor import checks, gallery
from tests.app.commands import refused


def test_gradcheck_command_sets_its_exit_code(capsys, monkeypatch):
    assert main(["gradcheck", "softmax"]) == 0
    assert "softmax" in capsys.readouterr().out
    monkeypatch.setattr(checks, "run", lambda names, seed, stream, backend: len(names))
    assert main(["gradcheck", "softmax", "linear", "--seed", "3"]) == 1


def test_refuses_unknown_name_and_negative_seed_in_one_line(capsys):
    message = refused(capsys, "gradcheck", "sotfmax")
    assert "there is no op, layer or model 'sotfmax'; the nearest are 'softmax'" in message
    assert "the nearest are" in refused(capsys, "gradcheck", "?" * 5000)
    assert "--seed must be at least 0, got -1" in refused(capsys, "gradcheck", "linear", "--seed", "-1")
    assert "do not give a NAME" in refused(capsys, "gradcheck", "linear", "--gallery")


def test_gallery_prints_every_mistake_and_counts_the_missed_ones(capsys, monkeypatch):
    two = {name: gallery.GALLERY[name] for name in ("zero", "bias_averaged")}
    monkeypatch.setattr(gallery, "GALLERY", two)
    assert main(["gradcheck", "--gallery"]) == 0
    text = capsys.readouterr().out
    assert "bias_averaged  caught  linear" in text
    assert two["zero"].hides.split(".")[0] in " ".join(text.split())
    assert text.endswith("2 of 2 caught by the full check\n")
    monkeypatch.setattr(gallery, "catch", lambda mistake: "" if mistake.name == "zero" else "caught")
    assert main(["gradcheck", "--gallery"]) == 1
    assert "zero           MISSED  softmax" in capsys.readouterr().out
