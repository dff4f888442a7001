"""reverse: the digits in reverse order."""

import numpy as np

from tests.training.tasks.trained import trained


def test_reversing_is_learned(tmp_path):
    trainer, figures = trained(tmp_path, "reverse", context=6, d_model=16, batch=64, steps=200, learning_rate=1e-2)
    assert figures["val_accuracy"] > 0.95
    ids, targets = trainer.task.batch(np.random.default_rng(0))
    np.testing.assert_array_equal(targets, ids[:, ::-1])
