"""Checkpoint files: complete at every moment, one run in each directory, and damage is noticed."""

import errno
import os
import shlex
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_attention.errors import InputError
from numpy_attention.training.c29_checkpoint import BEST, NAME, PREVIOUS, hold, load_arrays, save
from numpy_attention.training.restore import load_run
from tests.training.small_runs import TEXT, trainer

ARRAYS = {"parameters.w": np.arange(6, dtype=np.float32), "optimizer.steps": np.asarray(12)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A new run, which has saved its checkpoint."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "text.txt").write_text(TEXT)
    run = trainer(folder / "run", str(folder / "text.txt"), d_model=4, optimizer="sgd")
    run.save()
    return run


FOREIGN = st.builds(bytes.__add__, st.sampled_from([b"", b"PK\3\4", b"\x93NUMPY\1\0"]), st.binary(max_size=300))


def flipped(whole, place, other):
    return whole[:place] + bytes([whole[place] ^ other]) + whole[place + 1 :]


@settings(max_examples=60)
@given(data=st.data(), damage=st.sampled_from(["flipped", "truncated", "foreign", "continued"]))
def test_damaged_checkpoint_gives_one_line_and_loads_nothing_wrong(run, data, damage):
    whole, path = (run.directory / NAME).read_bytes(), run.directory / "damaged.npz"
    place = data.draw(st.integers(0, len(whole) - 1) | st.integers(len(whole) - 400, len(whole) - 1))
    path.write_bytes({
        "flipped": lambda: flipped(whole, place, data.draw(st.integers(1, 255))), "truncated": lambda: whole[:place],
        "foreign": lambda: data.draw(FOREIGN), "continued": lambda: whole + data.draw(FOREIGN),
    }[damage]())  # fmt: skip
    try:
        _, arrays, meta = load_run(path)
        run.restore(arrays, meta)
    except InputError as error:
        lines = str(error).splitlines()
    else:
        lines = []
    if lines:
        assert len(lines) == 1
        return
    assert damage in ("flipped", "continued")  # for example, the time of a member has changed
    _, expected, true = load_run(run.directory)
    assert meta == true
    for name, p in run.model.parameters().items():
        np.testing.assert_array_equal(p, expected[f"parameters.{name}"].read())
    for name, array in run.optimizer.state().items():
        np.testing.assert_array_equal(array, expected[f"optimizer.{name}"].read())


def test_pickle_in_a_checkpoint_is_not_run(tmp_path):
    class Opened:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "opened"),)

    np.savez(tmp_path / NAME, meta=np.array([Opened()], dtype=object))
    with pytest.raises(InputError, match="damaged or not a numpy_attention checkpoint"):
        load_arrays(tmp_path / NAME)
    assert not (tmp_path / "opened").exists()


def test_previous_checkpoint_survives_and_is_suggested_when_the_new_one_is_damaged(tmp_path):
    tmp_path = tmp_path / "my run"
    tmp_path.mkdir()
    path = tmp_path / NAME
    for step in (1, 2):
        save(tmp_path, ARRAYS, {"step": step})
    assert steps_in(tmp_path) == (2, 1)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="to continue from the previous checkpoint, mv") as caught:
        load_arrays(path)
    assert shlex.split(str(caught.value))[-3:] == ["mv", str(tmp_path / PREVIOUS), str(path)]


def steps_in(directory):
    """The steps of the checkpoint and of the previous checkpoint."""
    return tuple(load_arrays(directory / name)[1]["step"] for name in (NAME, PREVIOUS))


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_save_on_a_full_disk_keeps_the_checkpoint(tmp_path, monkeypatch):
    for step in (1, 2):
        save(tmp_path, ARRAYS, {"step": step})
    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(InputError, match=r"cannot write to .*: No space left on device"):
        save(tmp_path, ARRAYS, {"step": 3})
    assert steps_in(tmp_path) == (2, 2)
    assert sorted(os.listdir(tmp_path)) == [NAME, PREVIOUS]


@pytest.mark.parametrize("links", [True, False])
def test_every_checkpoint_is_complete_at_every_line_of_a_save(tmp_path, monkeypatch, links):
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
    assert list(dict.fromkeys(seen)) == [(2, 1), (2, 2), (3, 2)]
    assert load_arrays(tmp_path / BEST)[1]["step"] == 3


def test_second_name_left_by_a_killed_save_is_not_written_to(tmp_path):
    save(tmp_path, ARRAYS, {"step": 1}, best=True)
    os.link(tmp_path / BEST, tmp_path / ".checkpoint.tmp.npz")  # killed before the rename
    save(tmp_path, ARRAYS, {"step": 2})
    assert load_arrays(tmp_path / BEST)[1]["step"] == 1
    assert steps_in(tmp_path) == (2, 1)
    assert sorted(os.listdir(tmp_path)) == [BEST, NAME, PREVIOUS]


def test_only_one_run_can_hold_a_directory(tmp_path):
    with hold(tmp_path), pytest.raises(InputError, match="is in use: another run trains there"), hold(tmp_path):
        pass
    with hold(tmp_path):  # the file remains, but the lock has ended
        pass
    with pytest.raises(InputError, match=r"cannot write to .*none"), hold(tmp_path / "none"):
        pass
