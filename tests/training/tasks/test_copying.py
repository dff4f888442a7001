"""copy: the model copies the symbols."""

import numpy as np

from numpy_attention.training.tasks import copying
from tests.training.tasks.trained import trained


def test_copying_is_learned_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "FRESH", 100)
    settings = {"context": 5, "layers": 1, "d_model": 32, "d_ff": 32, "batch": 40, "steps": 300, "learning_rate": 1e-2}
    trainer, figures = trained(tmp_path, "copy", **settings)
    assert figures["val_exact"] > 0.9
    source_ids, target_ids, targets = trainer.task.batch(np.random.default_rng(0))
    assert (source_ids[:, 0] == 1).all()
    np.testing.assert_array_equal(target_ids, source_ids[:, :-1])
    np.testing.assert_array_equal(targets, source_ids[:, 1:])
