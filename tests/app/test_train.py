"""`train` from outside: what it writes, what it prints, how it ends, and how it refuses."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import TASKS
from numpy_attention.errors import InputError, command
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.c27_data import read_text
from numpy_attention.training.c32_trainer import Trainer
from tests.app.commands import SIZES, last_lines, no_pictures, refused, run_directory, text, trained

__all__ = ["no_pictures", "run_directory", "text"]


def test_training_writes_log_config_checkpoint_and_picture(tmp_path, text, capsys):
    directory = tmp_path / "deep" / "run"
    assert main(["train", "--text", str(text), "--out", str(directory), *SIZES]) == 0
    out, _ = capsys.readouterr()
    for message in ("bigram", "trigram", "4-gram", "this GPT", "nats per character", "a sample:", str(directory)):
        assert message in out
    assert {path.name for path in directory.iterdir()} == {
        "log.jsonl", "config.json", "checkpoint.npz", "checkpoint.previous.npz", "checkpoint.best.npz", "loss.png",
        "run.lock",
    }  # fmt: skip
    log = [json.loads(line) for line in (directory / "log.jsonl").read_text("utf-8").splitlines()]
    assert [entry["step"] for entry in log] == [1, 4, 8]
    assert "val_loss" in log[-1]
    config = json.loads((directory / "config.json").read_text("utf-8"))
    assert config["d_model"] == 16
    assert config["model"]["vocab_size"] == len(set(text.read_text("utf-8")))
    assert (directory / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_same_seed_gives_the_same_run_and_another_seed_differs(tmp_path, text):
    a, b, c = (tmp_path / name for name in "abc")
    for out, seed in ((a, 3), (b, 3), (c, 4)):
        trained("--text", text, "--out", out, *SIZES, "--seed", seed)
    assert parameters(a) == parameters(b)
    assert parameters(a) != parameters(c)


# How a run ends


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_run_after_saving(tmp_path, text, monkeypatch, capsys, number, code):
    directory, step_once = tmp_path / "my run", Trainer.one_step

    def one_step(trainer):
        if trainer.step == 4:
            os.kill(os.getpid(), number)
        return step_once(trainer)

    monkeypatch.setattr(Trainer, "one_step", one_step)
    out, err = last_lines(capsys, code, "train", "--text", text, "--out", directory, *SIZES)
    assert err == ""
    again = command(f"train --resume '{directory}'")
    assert out.endswith(
        f"\nstopped by {number.name} after step 5, which is saved; continue with:\n"
        f"  {again}\n"
    )
    assert checkpoint.load_arrays(directory / checkpoint.NAME)[1]["step"] == 5


def test_diverging_run_ends_with_one_line(tmp_path, text, capsys):
    command = ["--text", text, "--out", tmp_path / "run", *SIZES, "--workers=2", "--learning-rate=1e5", "--warmup=0"]
    err = last_lines(capsys, 1, "train", *command).err
    assert err.startswith("numpy-attention: stopped at step 3: the loss is nan")
    assert err.count("\n") == 1


def test_full_disk_gives_one_line_and_nothing_is_lost(tmp_path, text, capsys, monkeypatch):
    def full(handle):
        if Trainer.save_number > 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    def save(trainer):
        Trainer.save_number += 1
        save_once(trainer)

    save_once, out = Trainer.save, tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save_number", 0, raising=False)
        patch.setattr(Trainer, "save", save)
        patch.setattr(os, "fsync", full)
        err = last_lines(capsys, 2, "train", "--text", text, "--out", out, *SIZES).err
    assert err == f"numpy-attention: cannot write to {out}: No space left on device\n"
    assert checkpoint.load_arrays(out / checkpoint.NAME)[1]["step"] == 2
    trained("--resume", out)
    trained("--text", text, "--out", tmp_path / "whole", *SIZES)
    assert parameters(out) == parameters(tmp_path / "whole")


def parameters(run):
    arrays, _ = checkpoint.load_arrays(run / checkpoint.NAME)
    return {name: array.read().tobytes() for name, array in arrays.items()}


@pytest.fixture
def short_report(monkeypatch):
    """The report takes longer than a small run."""
    monkeypatch.setattr(TASKS["text"], "report", lambda *_: "the report")


# The directory of a run


def test_second_run_in_a_directory_is_refused_in_one_line_and_changes_nothing(run_directory, text, capsys):
    before = {path.name: path.read_bytes() for path in run_directory.iterdir()}
    with checkpoint.hold(run_directory):
        err = refused(capsys, "train", "--resume", run_directory)
        assert err.startswith(f"numpy-attention: {run_directory} is in use: another run trains there")
        assert main(["sample", str(run_directory), "--tokens", "3", "--prompt", "T"]) == 0  # reading needs no lock
    assert {path.name: path.read_bytes() for path in run_directory.iterdir()} == before


def test_directory_that_holds_a_run_is_not_overwritten(run_directory, text, capsys):
    before = parameters(run_directory)
    assert "--resume" in refused(capsys, "train", "--text", text, "--out", run_directory, *SIZES)
    assert f"cannot write to {text}: File exists" in refused(capsys, "train", "--text", text, "--out", text, *SIZES)
    assert parameters(run_directory) == before


# Settings


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"), (b"too short", "too few"), (b"abc\xff" * 99, "offset 3"), (None, "No such file"),
    ],
)  # fmt: skip
def test_unusable_text_is_refused_and_writes_nothing(tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_bytes(content)
    assert message in refused(capsys, "train", "--text", path, *SIZES)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (["--heads", "3"], "--d-model must be divisible by --heads, got 128 and 3"),
    (["--steps", "0"], "--steps must be at least 1, got 0"),
    (["--step", "3"], "unrecognized arguments: --step"),
    (["--task", "copy", "--positions", "rotary"], "--positions must be one of "),
    (["--as-in-the-lesson"], "--as-in-the-lesson needs --task sum"),
    (["--task=reverse", "--text=/none"], "--text has no effect with this --task; leave it out"),
], ids=lambda one: " ".join(one) if isinstance(one, list) else "")  # fmt: skip
def test_refuses_impossible_settings_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, "train", *arguments)
    assert not (tmp_path / "runs").exists()


def test_options_override_settings_from_a_file(tmp_path, text):
    file = tmp_path / "run.toml"
    file.write_text("steps = 3\nd_model = 8\nheads = 1\nlayers = 1\ncontext = 4\nbatch = 2\nworkers = 1\n")
    trained("--config", file, "--text", text, "--steps", "2", "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert (config["steps"], config["d_model"], config["text"]) == (2, 8, str(text))


@pytest.mark.parametrize(("content", "message"), [
    (b"stpes = 3", "run.toml: there is no setting 'stpes'; did you mean 'steps'?"),
    (b"steps = ", "run.toml is not TOML"),
    (None, "cannot read run.toml"),
])  # fmt: skip
def test_refuses_unusable_settings_file(tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "run.toml").write_bytes(content)
    err = refused(capsys, "train", "--config", "run.toml")
    assert message in err
    assert not (tmp_path / "runs").exists()


# Resumed runs


@pytest.mark.usefixtures("no_pictures", "short_report")
def test_resumed_finished_run_prints_its_report_and_refuses_new_settings(run_directory, text, capsys):
    assert main(["train", "--resume", str(run_directory)]) == 0
    assert "the report" in capsys.readouterr().out
    changed = ["--steps", 9, "--batch", 5]
    assert "--steps, --batch cannot change" in refused(capsys, "train", "--resume", run_directory, *changed)
    err = refused(capsys, "train", "--resume", run_directory, "--out", run_directory, "--as-in-the-lesson")
    assert "--out, --as-in-the-lesson cannot change in a resumed run" in err


def half_done(tmp_path, text, monkeypatch, *more):
    """The directory of a run that was stopped in its middle."""
    monkeypatch.chdir(tmp_path)
    half, saved = tmp_path / "half", Trainer.save

    def save_and_stop(trainer):
        saved(trainer)
        if trainer.step == 4:
            raise InputError("enough")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_stop)
        assert main(["train", "--text", text.name, *SIZES, *more, "--out", str(half)]) == 2
    return half


@pytest.mark.parametrize("more", [[], ["--vocabulary=bpe", "--vocab-size=260"]], ids=["char", "bpe"])
def test_run_resumes_to_the_same_bits_with_a_moved_text(tmp_path, text, monkeypatch, capsys, more):
    half = half_done(tmp_path, text, monkeypatch, *more)
    trained("--text", text, *SIZES, *more, "--out", tmp_path / "whole")
    moved = tmp_path / "moved.txt"
    text.rename(moved)
    capsys.readouterr()
    assert f"cannot read {text.name}: No such file or directory" in refused(capsys, "train", "--resume", half)
    trained("--resume", half, "--text", moved)
    assert str(moved) in capsys.readouterr().out.splitlines()[0]
    assert parameters(half) == parameters(tmp_path / "whole")
    assert json.loads((half / "config.json").read_text("utf-8"))["text"] == str(moved)
    trained("--resume", half)  # the new place is saved


@pytest.mark.slow
def test_page_shows_how_to_save_the_help_topics(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "pythons.md").read_text("utf-8")
    block = re.search(r"<!-- topics -->\s*```sh\npython3 -c \"([^\"]*)\"\n```", page)
    subprocess.run([sys.executable, "-c", block[1]], cwd=tmp_path, check=True)
    assert len(read_text(tmp_path / "topics.txt")) > 400_000


def test_refuses_another_text_in_a_resumed_run(tmp_path, text, monkeypatch, capsys):
    half = half_done(tmp_path, text, monkeypatch)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text("utf-8").replace("quick", "brown"))
    before = {path.name: path.read_bytes() for path in half.iterdir()}
    capsys.readouterr()
    err = refused(capsys, "train", "--resume", half, "--text", other)
    assert "the text is not the one that the run was trained on; give its path with --text" in err
    assert "--from" not in err
    assert {path.name: path.read_bytes() for path in half.iterdir()} == before
