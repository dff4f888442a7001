"""Checkpoint files: no kill leaves an incomplete file, and the previous checkpoint is kept."""

import errno
import os
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.files import save_arrays, sweep
from numpy_attention.training import checkpoint
from numpy_attention.training.checkpoint import BEST, NAME, PREVIOUS, keep_as, load_arrays, save

ARRAYS = {"parameters.w": np.arange(6, dtype=np.float32), "optimizer.steps": np.asarray(12)}


def test_kill_during_save_leaves_a_complete_file(tmp_path):
    path = tmp_path / "checkpoint.npz"
    save_arrays(path, {"w": np.zeros(1)}, {"step": -1})
    program = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from numpy_attention.files import save_arrays\n"
        "print('ready', flush=True)\n"
        "for step in range(10**9):\n"
        "    save_arrays(Path(sys.argv[1]), {'w': np.full(10**6, step)}, {'step': step})\n"
    )
    for delay in (0.0, 0.03, 0.07):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.kill()
        arrays, meta = load_arrays(path)
        assert (arrays["w"] == max(meta["step"], 0)).all()
    sweep(tmp_path, checkpoint.OF_A_RUN)
    assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_previous_checkpoint_survives_and_is_suggested_when_the_new_one_is_damaged(tmp_path):
    tmp_path = tmp_path / "my run"
    tmp_path.mkdir()
    path = tmp_path / "checkpoint.npz"
    save_arrays(path, ARRAYS, {"step": 1})
    keep_as(path, checkpoint.PREVIOUS)
    save_arrays(path, ARRAYS, {"step": 2})
    assert load_arrays(tmp_path / checkpoint.PREVIOUS)[1]["step"] == 1
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"the previous checkpoint is .*previous") as caught:
        load_arrays(path)
    assert shlex.split(str(caught.value))[-3:] == ["mv", str(tmp_path / checkpoint.PREVIOUS), str(path)]


def test_second_name_needs_no_copy_and_leftovers_of_a_kill_do_not_matter(tmp_path):
    path, room = tmp_path / "checkpoint.npz", tmp_path / ".0123456789abcdef.tmp"
    save_arrays(path, ARRAYS, {"step": 1})
    room.mkdir()
    os.link(path, room / checkpoint.BEST)  # a process died between the link and the rename
    keep_as(path, checkpoint.BEST)
    assert os.path.samefile(path, tmp_path / checkpoint.BEST)
    assert load_arrays(path)[1]["step"] == 1
    sweep(tmp_path, checkpoint.OF_A_RUN)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.best.npz", "checkpoint.npz"]


def test_second_name_is_a_copy_without_hard_links(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError("no hard links here")

    path = tmp_path / "checkpoint.npz"
    save_arrays(path, ARRAYS, {"step": 1})
    monkeypatch.setattr(os, "link", refuse)
    keep_as(path, checkpoint.BEST)
    assert (tmp_path / checkpoint.BEST).read_bytes() == path.read_bytes()


def steps_in(directory):
    """The steps of the checkpoint and of the previous checkpoint."""
    return tuple(load_arrays(directory / name)[1]["step"] for name in (NAME, PREVIOUS))


def test_failed_save_keeps_both_checkpoints(tmp_path, monkeypatch):
    for step in (1, 2):
        save(tmp_path, ARRAYS, {"step": step})
    with pytest.raises(TypeError, match="not JSON serializable"):
        save(tmp_path, ARRAYS, {"step": 3, "best": {1}})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write to .*: No space left on device"):
        save(tmp_path, ARRAYS, {"step": 3})
    assert steps_in(tmp_path) == (2, 1)
    assert sorted(os.listdir(tmp_path)) == [NAME, PREVIOUS]


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("links", [True, False])
def test_both_checkpoints_are_complete_and_differ_at_every_line_of_a_save(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", full)
    for step in (1, 2):
        save(tmp_path, ARRAYS, {"step": step})
    seen, looked_at = [], []

    def watch(frame, event, argument):
        sys.settrace(None)
        files = [os.stat(tmp_path / name) for name in (NAME, PREVIOUS)]
        now = [(file.st_ino, file.st_size, file.st_mtime_ns) for file in files]
        if [now] != looked_at[-1:]:
            looked_at.append(now)
            seen.append(steps_in(tmp_path))  # what a kill would leave here
        sys.settrace(watch)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        save(tmp_path, ARRAYS, {"step": 3}, best=True)
    finally:
        sys.settrace(before)
    assert list(dict.fromkeys(seen)) == [(2, 1), (3, 1), (3, 2)]
    assert load_arrays(tmp_path / BEST)[1]["step"] == 3
    assert not os.path.samefile(tmp_path / NAME, tmp_path / PREVIOUS)
