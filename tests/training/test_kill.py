"""A killed run loses at most the steps after its last checkpoint, and ends like an uninterrupted run."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from numpy_attention.training.c29_checkpoint import BEST, NAME, PREVIOUS, load_arrays
from tests.app.commands import trained
from tests.training.small_runs import log_without_times, text

__all__ = ["text"]
# Almost all of the time of such a run is spent in its saves.
RUN = ["--layers=1", "--heads=2", "--d-model=8", "--context=8", "--batch=4", "--dropout=0.2", "--workers=1"]
RUN += ["--steps=60", "--log-every=1", "--eval-every=10", "--save-every=1"]


@pytest.mark.slow
def test_run_killed_at_random_moments_of_its_saves_ends_like_the_uninterrupted_run(tmp_path, text, rng):
    whole, out = tmp_path / "whole", tmp_path / "run"
    trained("--text", text, "--out", whole, *RUN)
    command, kills, step = ["--text", text, "--out", out, *RUN], 0, 0
    while (code := killed_or_ended(command, out / NAME, rng)) == -signal.SIGKILL:
        kills += 1
        saved = load_arrays(out / NAME)[1]["step"]
        assert saved >= step
        if (out / PREVIOUS).exists():
            assert load_arrays(out / PREVIOUS)[1]["step"] <= saved
        command, step = ["--resume", out], saved
    assert code == 0
    assert kills >= 3
    for name in (NAME, BEST):
        ours, theirs = load_arrays(out / name)[0], load_arrays(whole / name)[0]
        assert ours.keys() == theirs.keys()
        for key, array in theirs.items():
            np.testing.assert_array_equal(ours[key].read(), array.read(), err_msg=key)
    assert log_without_times(out) == log_without_times(whole)
    assert not [path.name for path in out.iterdir() if ".tmp" in path.name]


def killed_or_ended(command, path, rng):
    """The exit code of a run that is killed soon after its first save, if it does not end before."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    with subprocess.Popen([sys.executable, "-m", "numpy_attention", "train", *map(str, command)]) as process:
        while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == before):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        return process.wait()
