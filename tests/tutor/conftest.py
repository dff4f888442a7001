"""Files of students are graded in this process, on a few examples; `other_process` starts the other process."""

import sys
from functools import partial

import pytest

from numpy_attention.tutor import child, notebook, one_change, run
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.grading import grade_module


@pytest.fixture(autouse=True)
def graded_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a student's folder is added to it
    monkeypatch.setattr(child, "grade_module", partial(grade_module, examples=4))
    monkeypatch.setattr(notebook, "grade_module", partial(grade_module, examples=4))
    if "searched_to_the_end" not in request.fixturenames:
        monkeypatch.setattr(one_change, "SECONDS", 0.2)
    if "other_process" not in request.fixturenames:
        monkeypatch.setattr(run, "grade_file", lambda file, name, *_: child.grade_here(file.resolve(), EXERCISES[name]))


@pytest.fixture
def searched_to_the_end() -> None:
    """Search for the change that explains an answer as long as the command does."""


@pytest.fixture
def other_process() -> None:
    """Grade in the other process, as the command does."""
