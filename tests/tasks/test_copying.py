"""copy: the symbols as they are."""

import numpy as np

from tests.tasks.trained import trained


def test_copying_is_learned_exactly(tmp_path):
    settings = {"context": 6, "layers": 1, "d_model": 32, "d_ff": 64, "steps": 400, "learning_rate": 5e-3}
    trainer, figures = trained(tmp_path, "copy", **settings)
    assert figures["val_exact"] > 0.9
    source_ids, target_ids, targets = trainer.task.batch(np.random.default_rng(0))
    assert (source_ids[:, 0] == 1).all()
    np.testing.assert_array_equal(target_ids, source_ids[:, :-1])
    np.testing.assert_array_equal(targets, source_ids[:, 1:])
