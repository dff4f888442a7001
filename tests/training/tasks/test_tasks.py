"""Every task learns, and runs from the command line with its report."""

import json

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.training.config import TASKS as NAMES
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks import copying, dates, digits, induction, reverse, sums
from tests.app.commands import no_pictures
from tests.training.small_runs import text
from tests.training.tasks.trained import synthetic_digits, trained

__all__ = ["no_pictures", "text"]


def test_tasks_have_their_names_and_valid_defaults():
    assert tuple(TASKS) == NAMES
    for name, task in TASKS.items():
        TrainConfig.from_mapping({"task": name, **task.defaults}, "")


LEARNS = {  # small settings; the figure, and the least or the most that it must be
    "text": ({"layers": 1, "heads": 2, "d_model": 16, "context": 16, "batch": 6, "warmup": 2, "steps": 150,
              "learning_rate": 1e-2}, "val_loss", 0.0, 0.5),
    "sum": ({"steps": 200, "learning_rate": 5e-3}, "val_accuracy", 0.85, 1.0),
    "reverse": ({"context": 6, "d_model": 16, "batch": 64, "steps": 200, "learning_rate": 1e-2},
                "val_accuracy", 0.95, 1.0),
    "copy": ({"context": 5, "layers": 1, "d_model": 32, "d_ff": 32, "batch": 40, "steps": 300, "learning_rate": 1e-2},
             "val_exact", 0.9, 1.0),
    "dates": ({"layers": 1, "d_model": 32, "d_ff": 32, "batch": 16, "steps": 100, "learning_rate": 1e-2, "warmup": 10},
              "val_loss", 0.0, 1.2),  # ten digits and a dash, of which the dashes and the century are easy
    "digits": ({"layers": 1, "steps": 200, "learning_rate": 5e-3, "warmup": 20}, "val_accuracy", 0.9, 1.0),
    "induction": ({"context": 32, "steps": 500}, "val_loss_second", 0.0, 2.0),
    "answers": ({"context": 4, "d_model": 32, "steps": 150, "learning_rate": 3e-3}, "val_exact", 0.7, 1.0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("task", [task for task in TASKS if task not in ("grpo", "dpo")])  # see tests/beyond
def test_task_is_learned(tmp_path, text, monkeypatch, task):
    monkeypatch.setattr(digits, "load_images", synthetic_digits)
    for module in (copying, dates):
        monkeypatch.setattr(module, "FRESH", 100)  # held-out examples
    settings, figure, least, most = LEARNS[task]
    settings = settings | {"text": text} if task == "text" else settings
    _, before = trained(tmp_path, task, **(settings | {"steps": 1}))
    _, after = trained(tmp_path, task, **settings)
    assert least <= after[figure] <= most
    assert not least <= before[figure] <= most


@pytest.mark.slow
def test_the_setting_of_the_lesson_does_not_learn_the_sum(tmp_path):
    trainer, figures = trained(tmp_path, "sum", **sums.SumTask.lesson)
    assert 0.45 < trainer.task.test[1].mean() < 0.55
    assert figures["val_accuracy"] < 0.56


def test_targets_of_reverse_and_copy():
    rng = np.random.default_rng(0)
    ids, targets = make_task(TrainConfig(task="reverse", context=6)).batch(rng)
    np.testing.assert_array_equal(targets, ids[:, ::-1])
    source_ids, target_ids, targets = make_task(TrainConfig(task="copy", context=6)).batch(rng)
    assert (source_ids[:, 0] == 1).all()
    np.testing.assert_array_equal(target_ids, source_ids[:, :-1])
    np.testing.assert_array_equal(targets, source_ids[:, 1:])


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
    assert capsys.readouterr().err.count("\n") == 1
