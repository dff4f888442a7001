"""sum: the labels, and Adam learns the task although the setting of the lesson does not."""

import numpy as np

from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.sums import SumTask
from tests.training.tasks.trained import trained


def test_adam_learns_the_sum_and_the_setting_of_the_lesson_does_not(tmp_path):
    assert trained(tmp_path, "sum", steps=200, learning_rate=5e-3)[1]["val_accuracy"] > 0.85
    trainer, figures = trained(tmp_path, "sum", **SumTask.lesson)
    labels = trainer.task.test[1]
    assert 0.45 < labels.mean() < 0.55
    assert figures["val_accuracy"] < 0.56


def test_labels_match_the_sums():
    config = TrainConfig(**({"task": "sum"} | SumTask.defaults))
    ids, labels = SumTask(config).examples(500, np.random.default_rng(0))
    assert ids.min() == 0
    assert ids.max() == 99
    np.testing.assert_array_equal(labels, [int(sum(row) > 400) for row in ids.tolist()])
