"""What the tests of the command line share: a small run in a directory, and the one line of a refusal."""

import pytest

from numpy_attention.app import plots, train
from numpy_attention.app.main import main

SIZES = [
    "--layers=1", "--heads=2", "--d-model=16", "--context=8", "--batch=4", "--workers=1", "--steps=8", "--eval-every=4",
    "--save-every=2",
]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox jumps over the lazy dog.\n" * 30, encoding="utf-8")
    return path


@pytest.fixture
def run_directory(tmp_path, text, capsys):
    directory = tmp_path / "run"
    trained("--text", text, "--out", directory, *SIZES)
    capsys.readouterr()
    return directory


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes longer than a small run."""
    monkeypatch.setattr(plots, "training_curves", lambda *_: None)
    monkeypatch.setattr(plots, "save", lambda figure, path, dpi: path)


def trained(*arguments):
    """Train to the end and leave out the closing report and the pictures, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "_finish", lambda *_: None)
        assert main(["train", *map(str, arguments)]) == 0


def refused(capsys, *arguments):
    """The one line with which a command refuses its input."""
    assert main([str(a) for a in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("numpy-attention: ")
    return err


def last_lines(capsys, code, *arguments):
    """The output of a command, on both streams, which must end with this code."""
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == code
    return capsys.readouterr()
