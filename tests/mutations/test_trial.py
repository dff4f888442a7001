"""A trial asks the nearest tests first, names the one that notices, and leaves the file as it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.draw import ROOT
from tests.mutations.places import token_mutations
from tests.mutations.trial import Reach, rounds

SOURCE = """
def below(a, b):
    return a < b

def countdown(n):
    while n > 0:
        n -= 1
    return n
"""
TESTS = """
import pathlib
import subprocess
import sys

def test_one_is_below_two():
    from numpy_attention.room.thing import below
    assert below(1, 2)

def test_no_number_is_below_itself():
    command = [sys.executable, "-c", "from numpy_attention.room.thing import below; assert not below(1, 1)"]
    assert subprocess.run(command).returncode == 0

def test_the_countdown_ends():
    from numpy_attention.room.thing import countdown
    assert countdown(3) == 0
"""
TRIES = """
import sys
from pathlib import Path
from tests.mutations import trial
from tests.mutations.places import token_mutations

trial.SECONDS = 1
trial.warm_up()
names = ["test_one_is_below_two", "test_no_number_is_below_itself", "test_the_countdown_ends"]
reach = {f"tests/room/test_thing.py::{name}": {"seconds": 0.0, "functions": ["room/thing." + what]}
         for name, what in zip(names, ["below", "below", "countdown"])}
source = Path("numpy_attention/room/thing.py").read_text("utf-8")
for one in token_mutations("room/thing", source):
    if one.change in ("a < b -> a <= b", "n -= 1 -> pass", "n > 0 -> n >= 0", "a -> b", "0 -> 1"):
        print(one.change, "|", trial.killed_by(Path.cwd(), one, reach, Path("log")).split("::")[-1])
assert Path("numpy_attention/room/thing.py").read_text("utf-8") == source
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a trial is a forked process")
def test_a_trial_names_the_test_that_notices_in_whichever_process(tmp_path: Path) -> None:
    files = {
        "numpy_attention/__init__.py": "", "numpy_attention/room/thing.py": SOURCE, "tests/room/test_thing.py": TESTS,
        "pytest.ini": "[pytest]\npythonpath = .\naddopts = -p no:numpy_attention.gradcheck.pytest_plugin\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    settings = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    command, env = [sys.executable, "-c", TRIES], os.environ | settings
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "a < b -> a <= b | test_no_number_is_below_itself",
        "a -> b | test_one_is_below_two",
        "n > 0 -> n >= 0 | test_the_countdown_ends",
        "0 -> 1 | test_the_countdown_ends",
        "n -= 1 -> pass | time",
    ]


def test_the_file_of_its_name_comes_first_then_its_room_then_the_others() -> None:
    def told(seconds: float, *functions: str) -> dict[str, object]:
        return {"seconds": seconds, "functions": list(functions)}

    reach: Reach = {
        "tests/cli/test_train.py::far": told(0.1, "room/thing.below"),
        "tests/room/test_other.py::beside": told(0.2, "room/thing.below"),
        "tests/room/test_thing.py::slow": told(3.0, "room/thing.below"),
        "tests/room/test_thing.py::quick": told(1.0, "room/thing.below", "room/thing.countdown"),
        "tests/room/test_thing.py::not_at_all": told(0.0, "room/thing.countdown"),
        "tests/room/test_thing.py::skipped": {**told(0.0, "room/thing.below"), "outcome": "skipped"},
    }
    below = next(one for one in token_mutations("room/thing", SOURCE) if one.function == "below")
    near, far = rounds(below, reach)
    assert [test.rpartition("::")[2] for test in near] == ["quick", "slow", "beside", "tests/room/test_thing.py"]
    assert [test.split("::")[1] for test in far] == ["far"]
