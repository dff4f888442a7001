"""A trial runs the nearest tests first, names the test that notices, and restores the file."""

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
    from numpy_attention.part.thing import below
    assert below(1, 2)

def test_no_number_is_below_itself():
    command = [sys.executable, "-c", "from numpy_attention.part.thing import below; assert not below(1, 1)"]
    assert subprocess.run(command).returncode == 0

def test_the_countdown_ends():
    from numpy_attention.part.thing import countdown
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
reach = {f"tests/part/test_thing.py::{name}": {"seconds": 0.0, "functions": ["part/thing." + what]}
         for name, what in zip(names, ["below", "below", "countdown"])}
source = Path("numpy_attention/part/thing.py").read_text("utf-8")
for one in token_mutations("part/thing", source):
    if one.change in ("a < b -> a <= b", "n -= 1 -> pass", "n > 0 -> n >= 0", "a -> b", "0 -> 1"):
        print(one.change, "|", trial.killed_by(Path.cwd(), one, reach, Path("log")).split("::")[-1])
assert Path("numpy_attention/part/thing.py").read_text("utf-8") == source
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a trial is a forked process")
def test_trial_names_the_test_that_notices(tmp_path: Path) -> None:
    files = {
        "numpy_attention/__init__.py": "", "numpy_attention/part/thing.py": SOURCE, "tests/part/test_thing.py": TESTS,
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


def test_own_test_file_runs_first_then_its_package_then_others() -> None:
    def recorded(seconds: float, *functions: str) -> dict[str, object]:
        return {"seconds": seconds, "functions": list(functions)}

    reach: Reach = {
        "tests/cli/test_train.py::far": recorded(0.1, "part/thing.below"),
        "tests/part/test_other.py::other": recorded(0.2, "part/thing.below"),
        "tests/part/test_thing.py::slow": recorded(3.0, "part/thing.below"),
        "tests/part/test_thing.py::quick": recorded(1.0, "part/thing.below", "part/thing.countdown"),
        "tests/part/test_thing.py::not_at_all": recorded(0.0, "part/thing.countdown"),
        "tests/part/test_thing.py::skipped": {**recorded(0.0, "part/thing.below"), "outcome": "skipped"},
    }
    below = next(one for one in token_mutations("part/thing", SOURCE) if one.function == "below")
    near, far = rounds(below, reach)
    assert [test.rpartition("::")[2] for test in near] == ["quick", "slow", "other", "tests/part/test_thing.py"]
    assert [test.split("::")[1] for test in far] == ["far"]
