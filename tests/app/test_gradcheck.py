"""`gradcheck`: what it prints, and its exit code."""

from numpy_attention.app.main import main
from numpy_attention.catalogue import table
from tests.app.commands import refused


def test_gradcheck_command_sets_its_exit_code(capsys, monkeypatch):
    assert main(["gradcheck", "softmax"]) == 0
    assert "softmax" in capsys.readouterr().out
    monkeypatch.setattr(table, "run", lambda names, seed, stream, backend: len(names))
    assert main(["gradcheck", "softmax", "linear", "--seed", "3"]) == 1


def test_refuses_unknown_name_and_negative_seed_in_one_line(capsys):
    message = refused(capsys, "gradcheck", "sotfmax")
    assert "there is no op, layer or model 'sotfmax'; the nearest are 'softmax'" in message
    assert "the nearest are" in refused(capsys, "gradcheck", "?" * 5000)
    assert "--seed must be at least 0, got -1" in refused(capsys, "gradcheck", "linear", "--seed", "-1")
    assert "do not give a NAME" in refused(capsys, "gradcheck", "linear", "--gallery")
