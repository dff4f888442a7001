"""Every task has its name and settings and runs from the command line."""

import json

import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import TASKS
from numpy_attention.training.config import TASKS as NAMES
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks import copying, dates, induction, reverse, sums
from tests.app.commands import no_pictures

__all__ = ["no_pictures"]


def test_tasks_have_their_names_and_valid_defaults():
    assert tuple(TASKS) == NAMES
    for name, task in TASKS.items():
        TrainConfig.from_mapping({"task": name, **task.defaults}, "")


SMALL = ["--layers=1", "--heads=2", "--d-model=16", "--batch=4", "--workers=1", "--steps=2"]


@pytest.mark.parametrize(
    ("task", "message"),
    [("sum", "fresh sequences"), ("reverse", "published"), ("copy", "exact copies"), ("dates", "exact"),
     ("induction", "the best head by each score")],
)
@pytest.mark.usefixtures("no_pictures")
def test_task_runs_and_resumes_from_the_command_line(tmp_path, capsys, monkeypatch, task, message):
    for module in (copying, dates, induction, reverse, sums):
        monkeypatch.setattr(module, "FRESH", 32)  # held-out examples
    directory = tmp_path / task
    assert main(["train", "--task", task, "--out", str(directory), *SMALL]) == 0
    assert message in capsys.readouterr().out
    assert json.loads((directory / "config.json").read_text("utf-8"))["task"] == task
    assert main(["train", "--resume", str(directory)]) == 0
    assert main(["sample", str(directory)]) == 2
    assert "only a text model" in capsys.readouterr().err


def test_refuses_sizes_that_do_not_fit_the_task(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for task, *bad in (
        ("sum", "--heads=3"), ("reverse", "--positions=rotary"), ("copy", "--heads=3"),
        ("dates", "--context=10"), ("induction", "--heads=3"), ("induction", "--context=30"),
        ("text", "--as-in-the-lesson"),
    ):  # fmt: skip
        assert main(["train", "--task", task, *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
