"""`train --resume` where the text or the pretrained model lies elsewhere: by what they hold they are known again."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.errors import InputError
from numpy_attention.training.data import read_text
from numpy_attention.training.tasks import text as text_task
from numpy_attention.training.trainer import Trainer
from tests.app.commands import SIZES, refused, text, trained
from tests.pretrained import tiny

__all__ = ["text"]

PAGE = Path(__file__).parents[2] / "docs" / "pythons.md"


def half_done(tmp_path, text, monkeypatch, *more):
    """The directories of a run that has ended, and of the same with the checkpoint from its middle."""
    monkeypatch.chdir(tmp_path)
    whole, half = tmp_path / "whole", tmp_path / "half"
    command = ["--text", text.name, *SIZES, *more, "--out"]
    trained(*command, whole)
    saved = Trainer.save

    def save_and_stop(trainer):
        saved(trainer)
        if trainer.step == 4:
            raise InputError("enough")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_stop)
        assert main(["train", *command, str(half)]) == 2
    return whole, half


def parameters(run):
    with np.load(run / "checkpoint.npz") as checkpoint:
        return {name: checkpoint[name].tobytes() for name in checkpoint if name != "meta" and "checksum" not in name}


@pytest.mark.parametrize("more", [[], ["--vocabulary=bpe", "--vocab-size=260"]], ids=["char", "bpe"])
def test_run_resumes_to_the_same_bits_with_a_moved_text(tmp_path, text, monkeypatch, capsys, more):
    whole, half = half_done(tmp_path, text, monkeypatch, *more)
    (tmp_path / "sub").mkdir()
    moved = tmp_path / "sub" / "moved.txt"
    text.rename(moved)
    message = f"cannot read {text.name}: No such file or directory; if it has moved, give its new place by --text"
    capsys.readouterr()
    assert message in refused(capsys, "train", "--resume", half)
    refusal = refused(capsys, "train", "--resume", half, "--text", "nowhere")
    assert "; if it has moved, give its new place by --text" in refusal
    trained("--resume", half, "--text", moved)
    assert str(moved) in capsys.readouterr().out.splitlines()[0]
    assert parameters(half) == parameters(whole)
    assert json.loads((half / "config.json").read_text("utf-8"))["text"] == str(moved)
    with np.load(half / "checkpoint.npz") as checkpoint:
        assert json.loads(checkpoint["meta"].tobytes())["config"]["text"] == str(moved)
    trained("--resume", half)  # which needs no telling any more


def test_refuses_another_text_in_a_resumed_run(tmp_path, text, monkeypatch, capsys):
    _, half = half_done(tmp_path, text, monkeypatch)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text("utf-8").replace("quick", "brown"))
    before = {path.name: path.read_bytes() for path in half.iterdir()}
    capsys.readouterr()
    err = refused(capsys, "train", "--resume", half, "--text", other)
    assert "the data or the model of --from differ from those of the checkpoint" in err
    assert "give their paths with --text and --from" in err
    assert {path.name: path.read_bytes() for path in half.iterdir()} == before
    trained("--task=sum", "--steps=1", "--out", tmp_path / "sum")
    capsys.readouterr()
    assert "--text cannot change" in refused(capsys, "train", "--resume", tmp_path / "sum", "--text", text)


def test_run_resumes_with_a_moved_pretrained_model(tmp_path, text, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny.folder(tiny.TIED)(tmp_path, "model")
    start = ["--from=model", "--steps=2", "--context=8", "--batch=1", "--workers=1", "--out=run"]
    trained("--text", text, *start)
    shutil.move("model", "elsewhere")
    capsys.readouterr()
    assert "if it has moved, give its new place by --text or --from" in refused(capsys, "train", "--resume", "run")
    trained("--resume", "run", "--from", "elsewhere")


def test_run_on_the_default_text_of_another_python_resumes_with_that_text_as_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(text_task, "default_text", lambda: "Help on another topic.\n" * 50)
        trained(*SIZES, "--out", "run")
    capsys.readouterr()
    assert "docs/pythons.md" in refused(capsys, "train", "--resume", "run")
    (tmp_path / "other.txt").write_text("Help on some other topic.\n" * 50)
    assert "differ from those of the checkpoint" in refused(capsys, "train", "--resume", "run", "--text", "other.txt")
    (tmp_path / "topics.txt").write_text("Help on another topic.\n" * 50)
    trained("--resume", "run", "--text", "topics.txt")


def test_page_shows_how_to_save_the_help_topics(tmp_path):
    block = re.search(r"<!-- topics -->\s*```sh\npython3 -c \"([^\"]*)\"\n```", PAGE.read_text("utf-8"))
    assert block
    subprocess.run([sys.executable, "-c", block[1]], cwd=tmp_path, check=True)
    topics = importlib.import_module("pydoc_data.topics").topics
    assert read_text(tmp_path / "topics.txt") == "".join(topics[name] for name in sorted(topics))
