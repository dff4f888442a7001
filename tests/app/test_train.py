"""`train` from outside: what it writes, what it prints, how it ends, and how it refuses."""

import dataclasses
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numpy_attention import plots
from numpy_attention.app.main import main
from numpy_attention.app.tasks import TASKS
from numpy_attention.errors import InputError
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.c27_data import read_text
from numpy_attention.training.c32_trainer import Trainer
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks import text as text_task
from tests.app.commands import SIZES, last_lines, no_pictures, refused, run_directory, text, trained
from tests.pretrained import tiny

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


def test_default_directory_is_named_by_the_time(tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    trained("--text", text, *SIZES, "--steps", "1")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["now"]


def test_same_seed_gives_the_same_run_and_another_seed_differs(tmp_path, text):
    a, b, c = (tmp_path / name for name in "abc")
    for out, seed in ((a, 3), (b, 3), (c, 4)):
        trained("--text", text, "--out", out, *SIZES, "--seed", seed)
    assert parameters(a) == parameters(b)
    assert parameters(a) != parameters(c)


def test_smallest_run_can_be_trained_and_sampled(tmp_path, text, capsys):
    sizes = ["--layers=1", "--heads=1", "--d-model=3", "--positions=learned", "--context=1", "--batch=1", "--workers=3"]
    run = str(tmp_path / "run")
    trained("--text", text, "--out", run, *sizes, "--steps=2", "--eval-every=1")
    capsys.readouterr()
    assert main(["sample", run, "--prompt", "T", "--tokens", "5"]) == 0
    assert len(capsys.readouterr().out) == len("T") + 5 + 1


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
    assert out.endswith(
        f"\nstopped by {number.name} after step 5, which is saved; continue with:\n"
        f"  python -m numpy_attention train --resume '{directory}'\n"
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


@pytest.mark.usefixtures("short_report")
def test_failing_picture_gives_one_line_and_the_training_completes(run_directory, capsys, monkeypatch):
    def failing(*arguments):
        raise RuntimeError("a\nb" * 1000)

    monkeypatch.setattr(plots, "training_curves", failing)
    out, err = last_lines(capsys, 0, "train", "--resume", run_directory)
    assert err.startswith("numpy-attention: there is no loss.png: a ba b")
    assert err.count("\n") == 1
    assert out.splitlines()[-1] == f"in {run_directory}: log.jsonl, config.json, checkpoint.npz"


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


@pytest.mark.parametrize(("option", "name"), [
    ("--out", "n" * 300), ("--out", "file/run"), ("--out", "/proc/none/run"),
    ("--resume", "n" * 300), ("--resume", "file/run"), ("--resume", "none"),
])  # fmt: skip
def test_refuses_directory_that_cannot_be_used_in_one_line(tmp_path, text, capsys, option, name):
    (tmp_path / "file").write_text("")
    settings = ["--text", text, *SIZES] if option == "--out" else []
    assert refused(capsys, "train", *settings, option, tmp_path / name)


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
    (["--heads", "128"], "--d-model / --heads must be an even width per head for rotary positions, got 128 / 128"),
    (["--steps", "0"], "--steps must be at least 1, got 0"),
    (["--steps", "many"], "invalid int value: 'many'"),
    (["--dropout", "1"], "below 1"),
    (["--optimizer", "adamax"], "--optimizer must be one of adamw, adam, sgd, got 'adamax'"),
    (["--step", "3"], "unrecognized arguments: --step"),
    (["--task", "copy", "--positions", "rotary"], "--positions must be one of "),
    (["--as-in-the-lesson"], "--as-in-the-lesson needs --task sum"),
    (["--task=reverse", "--text=/none"], "--text has no effect with this --task; leave it out"),
    (["--vocab-size=300"], "--vocab-size has no effect with this --vocabulary"),
    (["--optimizer=sgd", "--beta2=0.5"], "--beta2 has no effect with this --optimizer"),
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
    (b"steps = 'three'", "run.toml: --steps must be a whole number, got 'three'"),
    (b"steps = ", "run.toml is not TOML"),
    (b"text = '\xff'", "run.toml is not TOML"),
    (b"task = ['text']", "run.toml: --task must be a text, got a list"),
    (None, "cannot read run.toml"),
])  # fmt: skip
def test_refuses_unusable_settings_file(tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "run.toml").write_bytes(content)
    err = refused(capsys, "train", "--config", "run.toml")
    assert message in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("task", ["text", "sum"])
def test_settings_file_may_hold_all_default_settings(tmp_path, text, task):
    values = dataclasses.asdict(TrainConfig(task=task, **TASKS[task].defaults))
    values |= {"context": 8, "d_model": 8, "batch": 2, "steps": 1} | ({"text": str(text)} if task == "text" else {})
    lines = [f"{name} = {json.dumps(one)}" for name, one in values.items() if one is not None]
    (tmp_path / "run.toml").write_text("\n".join(lines))
    trained("--config", tmp_path / "run.toml", "--out", tmp_path / "run")


# Resumed runs


@pytest.mark.usefixtures("no_pictures", "short_report")
def test_resumed_finished_run_prints_its_report_and_refuses_new_settings(run_directory, text, capsys):
    assert main(["train", "--resume", str(run_directory)]) == 0
    assert "the report" in capsys.readouterr().out
    changed = ["--steps", 9, "--batch", 5]
    assert "--steps, --batch cannot change" in refused(capsys, "train", "--resume", run_directory, *changed)
    err = refused(capsys, "train", "--resume", run_directory, "--out", run_directory, "--as-in-the-lesson")
    assert "--out, --as-in-the-lesson cannot change in a resumed run" in err


def test_workers_and_recompute_can_change_in_a_resumed_run(run_directory):
    for changes, expected in ((["--recompute", "--workers=2"], (True, 2)), (["--no-recompute"], (False, 1))):
        trained("--resume", run_directory, *changes)
        config = json.loads((run_directory / "config.json").read_text("utf-8"))
        assert (config["recompute"], config["workers"]) == expected


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


def test_run_resumes_with_a_moved_pretrained_model(tmp_path, text, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny.folder(tiny.TIED)(tmp_path, "model")
    start = ["--from=model", "--steps=2", "--context=8", "--batch=1", "--workers=1", "--out=run"]
    trained("--text", text, *start)
    Path("model").rename("elsewhere")
    capsys.readouterr()
    assert "no file, folder or model called model" in refused(capsys, "train", "--resume", "run")
    trained("--resume", "run", "--from", "elsewhere")


def test_run_on_the_default_text_of_another_python_resumes_with_that_text_as_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(text_task, "default_text", lambda: "Help on another topic.\n" * 50)
        trained(*SIZES, "--out", "run")
    capsys.readouterr()
    assert "docs/pythons.md" in refused(capsys, "train", "--resume", "run")
    (tmp_path / "topics.txt").write_text("Help on another topic.\n" * 50)
    trained("--resume", "run", "--text", "topics.txt")


@pytest.mark.slow
def test_page_shows_how_to_save_the_help_topics(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "pythons.md").read_text("utf-8")
    block = re.search(r"<!-- topics -->\s*```sh\npython3 -c \"([^\"]*)\"\n```", page)
    subprocess.run([sys.executable, "-c", block[1]], cwd=tmp_path, check=True)
    assert len(read_text(tmp_path / "topics.txt")) > 400_000
