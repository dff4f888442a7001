"""`gradcheck`: what it prints, and its exit code."""

from numpy_attention.catalogue import table
from numpy_attention.cli import main


def test_the_gradcheck_command_passes_and_fails_with_its_exit_code(capsys, monkeypatch):
    assert main(["gradcheck", "softmax"]) == 0
    assert "softmax" in capsys.readouterr().out
    monkeypatch.setattr(table, "run", lambda names, seed, stream, backend: len(names))
    assert main(["gradcheck", "softmax", "linear", "--seed", "3"]) == 1
