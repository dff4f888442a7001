"""Killed runs lose at most the steps after their last save, and end like an uninterrupted run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.killed_runs import SAVE_EVERY

PROGRAM = Path(__file__).with_name("killed_runs.py")


@pytest.mark.parametrize(
    ("count", "seed"), [(4, 1), pytest.param(20, 2, marks=pytest.mark.slow)], ids=str
)
def test_killed_and_resumed_runs_equal_the_uninterrupted_run_bit_for_bit(tmp_path, count, seed):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[2])}
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(count), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    stories = json.loads(done.stdout)
    assert len(stories) == count
    assert sum(story["in_save"] for story in stories) == count // 2
    for story in stories:
        assert story["kills"] >= 1
        assert story["lost"] <= SAVE_EVERY, story
        assert story["code"] == 0, story
        assert story["same"], story
        assert story["left"] == [], story
    assert any(story["lost"] for story in stories)  # the kills did come at bad moments
