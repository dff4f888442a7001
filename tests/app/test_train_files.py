"""`train` and the files of its run: two at once, and paths that cannot be written to or read."""

import errno
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from numpy_attention.app import train
from numpy_attention.app.main import main
from numpy_attention.training import lock
from numpy_attention.training.checkpoint import load_arrays
from numpy_attention.training.tasks.sums import SumTask
from tests.app.commands import SIZES, last_lines, refused, run_directory, text, trained

__all__ = ["run_directory", "text"]
NOBODY = 65534


def started(*arguments):
    """A process that trains for long."""
    command = [sys.executable, "-m", "numpy_attention", "train", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(happened):
    deadline = time.monotonic() + 60
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert happened()


def test_runs_that_begin_in_the_same_second_use_different_directories(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    barrier, made = threading.Barrier(8), []

    def make():
        barrier.wait()
        made.append(train._new_directory(tmp_path / "runs"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(path.name for path in made) == ["now", *(f"now-{n}" for n in range(2, 9))]
    assert all(path.is_dir() for path in made)


def test_second_run_in_a_directory_is_refused_and_changes_nothing(tmp_path, text, capsys):
    out = tmp_path / "run"
    with started("--text", text, "--out", out, *SIZES, "--steps=100000") as process:
        wait_for((out / "checkpoint.previous.npz").exists)
        message = f"{out} is in use: process {process.pid} on "
        assert message in refused(capsys, "train", "--resume", out)
        assert message in refused(capsys, "train", "--resume", out, "--workers", 2)
        assert "already holds a run" in refused(capsys, "train", "--text", text, "--out", out, *SIZES)
        assert process.poll() is None
        process.kill()
    steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    assert steps == sorted(set(steps))
    saved = (out / "checkpoint.npz").stat().st_mtime_ns
    with started("--resume", out) as process:  # a kill leaves nothing in the way
        wait_for(lambda: (out / "checkpoint.npz").stat().st_mtime_ns > saved)
        assert f"process {process.pid} " in (out / lock.NAME).read_text("utf-8")
        process.terminate()
        assert process.wait(60) == 143


def test_directory_is_checked_again_under_the_lock(tmp_path, text, capsys, monkeypatch):
    out = tmp_path / "run"
    begin = train._begin

    def another_is_quicker(trainer, arguments):
        begin(trainer, arguments)
        monkeypatch.setattr(train, "_begin", begin)
        trained("--text", text, "--out", out, *SIZES, "--seed=1")
        capsys.readouterr()

    monkeypatch.setattr(train, "_begin", another_is_quicker)
    assert "already holds a run" in refused(capsys, "train", "--text", text, "--out", out, *SIZES)
    assert load_arrays(out / "checkpoint.npz")[1]["config"]["seed"] == 1


def test_reading_a_run_needs_no_lock(run_directory, capsys):
    with lock.hold(run_directory):
        assert main(["sample", str(run_directory), "--tokens", "3", "--prompt", "T"]) == 0
        assert "is in use" not in capsys.readouterr().err
        assert "is in use" in refused(capsys, "train", "--resume", run_directory)


@pytest.mark.parametrize("name", ["n" * 300, "file/run", "file/deep/run", "/proc/none/run", "/dev/null/run"])
def test_refuses_out_that_cannot_be_created_in_one_line(tmp_path, text, capsys, name):
    (tmp_path / "file").write_text("")
    message = refused(capsys, "train", "--text", text, "--out", tmp_path / name, *SIZES)
    assert "cannot" in message
    assert any(why in message for why in ("too long", "Not a directory", "No such file", "File exists"))


@pytest.mark.parametrize("name", ["n" * 300, "file/run", "none"])
def test_refuses_missing_run_to_resume_in_one_line(tmp_path, capsys, name):
    (tmp_path / "file").write_text("")
    assert refused(capsys, "train", "--resume", tmp_path / name)


def test_refuses_default_directory_that_cannot_be_created_in_one_line(tmp_path, text, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("")
    assert "runs" in refused(capsys, "train", "--text", text, *SIZES)


@pytest.fixture
def somebody(tmp_path):
    """We are a user to whom closed directories are closed: root may write everything."""
    for path in [one for one in (tmp_path, *tmp_path.parents) if Path(tempfile.gettempdir()) in one.parents]:
        path.chmod(path.stat().st_mode | 0o055)
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the permissions of Unix")
@pytest.mark.parametrize("out", ["closed", "closed/run", "closed/deep/run", "read_only/run"])
def test_refuses_directory_without_write_permission_in_one_line(tmp_path, text, capsys, request, out):
    for name, mode in (("closed", 0), ("read_only", 0o555)):
        (tmp_path / name).mkdir(mode)
    request.getfixturevalue("somebody")
    assert "Permission denied" in refused(capsys, "train", "--text", text, "--out", tmp_path / out, *SIZES)
    assert refused(capsys, "train", "--resume", tmp_path / out)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the permissions of Unix")
def test_refuses_to_resume_a_read_only_run(run_directory, capsys, request):
    before = {path.name: path.read_bytes() for path in run_directory.iterdir()}
    run_directory.chmod(0o555)
    (run_directory / lock.NAME).chmod(0o444)
    request.getfixturevalue("somebody")
    message = last_lines(capsys, 2, "train", "--resume", run_directory).err
    assert message == f"numpy-attention: cannot write to {run_directory}: Permission denied\n"
    assert {path.name: path.read_bytes() for path in run_directory.iterdir()} == before
    assert main(["sample", str(run_directory), "--tokens", "3", "--prompt", "T"]) == 0


def test_full_disk_during_training_gives_one_line(tmp_path, capsys, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "run"
    err = last_lines(capsys, 2, "train", "--task=sum", "--steps=3", "--out", out).err
    assert err == f"numpy-attention: cannot write to {out}: No space left on device\n"


def test_read_error_during_training_is_reported_as_a_read_error(tmp_path, capsys, monkeypatch):
    def gone(task, rng):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "data")

    monkeypatch.setattr(SumTask, "batch", gone)
    with pytest.raises(FileNotFoundError):  # an error of the program, not of the directory
        main(["train", "--task=sum", "--steps=3", "--out", str(tmp_path / "run")])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of Unix")
@pytest.mark.parametrize("option", ["--text", "--config", "--resume", "--from"])
def test_refuses_a_pipe_without_waiting(tmp_path, capsys, option):
    os.mkfifo(tmp_path / "pipe")
    assert refused(capsys, "train", option, tmp_path / "pipe")
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "checkpoint.npz")
    assert "not a regular file" in refused(capsys, "train", "--resume", tmp_path / "run")
    assert "not a regular file" in refused(capsys, "sample", tmp_path / "run")


def test_error_for_text_from_a_pipe_says_to_save_it_first(tmp_path):
    command = [sys.executable, "-m", "numpy_attention", "train", "--text", "/dev/stdin", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, input="abc " * 999, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    fix = "it is not a regular file; save its contents in a regular file first"
    assert done.stderr == f"numpy-attention: cannot read /dev/stdin: {fix}\n"
    assert not Path(tmp_path / "run").exists()
