"""Chapter 51, continued: the tasks whose answers can be checked learn, and refuse what they cannot use."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.app.tasks import make_task
from numpy_attention.errors import InputError
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks import labelled
from tests.training.tasks.trained import trained

START: dict[str, Any] = {"context": 6, "d_model": 32, "d_ff": 128, "learning_rate": 3e-3, "min_learning_rate": 3e-4}


def configured(task: str, **settings: Any) -> TrainConfig:
    return TrainConfig(task=task, **{"context": 6, **settings})


def start_of(directory: Path, task: str, **settings: Any) -> dict[str, float]:
    """Train, save the run in a directory with the name of the task, and return its figures."""
    (directory / task).mkdir()
    trainer, figures = trained(directory / task, task, **settings)
    trainer.save()
    return figures


def test_rewards_are_for_exact_answers_and_targets_only_in_the_answer() -> None:
    task = make_task(configured("answers"))
    rows = task.right(task.questions(5, np.random.default_rng(0)))
    np.testing.assert_array_equal(rows[:, 4:], rows[:, 2::-1])
    wrong = rows.copy()
    wrong[:, -1] = (wrong[:, -1] + 1) % 10
    np.testing.assert_array_equal(task.rewards(np.stack([rows, wrong])), [[1.0] * 5, [0.0] * 5])
    ids, targets = task.inputs(rows)
    np.testing.assert_array_equal(ids, rows[:, :-1])
    np.testing.assert_array_equal(targets, np.where(np.arange(6) >= 3, rows[:, 1:], -100))


def test_a_start_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path) -> None:
    start_of(tmp_path, "sum", steps=1)
    start_of(tmp_path, "answers", **{**START, "steps": 1})
    for settings, message in [
        ({}, "--task grpo needs --from RUN"), ({"from_": str(tmp_path / "nothing")}, "there is no directory"),
        ({"from_": str(tmp_path / "sum")}, "must be a run of answers, grpo or dpo with --context 6, got --task sum"),
        ({"from_": str(tmp_path / "answers"), "context": 8}, "with --context 8, got --task answers --context 6"),
        ({"from_": str(tmp_path / "answers"), "lora": 2}, "leave out --lora"),
    ]:
        with pytest.raises(InputError, match=message):
            make_task(configured("grpo", **settings))
    with pytest.raises(InputError, match="--context must be even"):
        make_task(configured("answers", context=7))
    untrained = make_task(configured("dpo", from_=str(tmp_path / "answers"), batch=1))
    with pytest.raises(InputError, match="writes no right answer, or no wrong one"):
        untrained.batch(np.random.default_rng(labelled.TEST))


@pytest.mark.slow
def test_both_ways_of_learning_write_more_right_answers_than_their_start(tmp_path: Path) -> None:
    start = start_of(tmp_path, "answers", **{**START, "steps": 150})
    for task, steps in (("grpo", 200), ("dpo", 200)):
        settings = {"context": 6, "from_": str(tmp_path / "answers"), "steps": steps, "learning_rate": 3e-4}
        trainer, after = trained(tmp_path, task, **settings)
        assert after["val_reward"] > start["val_reward"] + 0.05
        assert after["kl"] > 0.001
        assert trainer.task.reference is not trainer.model
